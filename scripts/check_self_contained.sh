#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_self_contained.sh [MPICXX]: compiles every header alone, as a user would who includes only
# that one, and then a whole program with nothing but MPI's compiler wrapper and -Iinclude.
#
# Bodies (*.ipp) cost as much to read as all else. They are read where the header that is checked
# includes them itself, and in the gates; a header that has none is compiled with the bodies of
# others left out.
#
# Most of the time would go to Asio, again and again: headers that include cohort/core/asio.hpp,
# themselves or through others, get it precompiled before all else. That hides only an order of
# includes, within one header, that would not do without.
#
# The layers device and nccl declare nothing without CUDA and NCCL, so their headers are compiled
# again with the declarations of the test doubles. Other versions, and the real headers, are those of
# check_gpu_versions.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
export mpicxx=${1:-mpicxx}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

flags="-std=c++20 -Wall -Wextra -Werror -Iinclude"
export flags scratch

# check HEADER OPTION...
check() {
  local first=()
  if grep -qxF "$1" "$scratch/with_asio"; then first=(-include "$scratch/asio.hpp"); fi
  # shellcheck disable=SC2086  # words
  "$mpicxx" $flags -fsyntax-only "${@:2}" "${first[@]}" -include "${1#include/}" -x c++ /dev/null &&
    return
  echo "not self-contained: $*" >&2
  return 1
}
export -f check

double=tests/support/fake_gpu/include
apart=" -DCOHORT_SEPARATE_COMPILATION -Wno-subobject-linkage"

# Prints the headers that include core/asio.hpp in the end.
headers_with_asio() {
  python3 - <<'END'
import pathlib, re
root = pathlib.Path("include")
includes = {
    str(path.relative_to(root)): re.findall(r"^#include <(cohort/[^>]+)>", path.read_text(), re.M)
    for path in root.rglob("*.[hi]pp")
}
reached = {"cohort/core/asio.hpp"}
while True:
    more = {one for one, others in includes.items() if reached.intersection(others)} - reached
    if not more:
        break
    reached |= more
print("\n".join(f"include/{one}" for one in sorted(reached) if one.endswith(".hpp")))
END
}
headers_with_asio >"$scratch/with_asio"
echo '#include <cohort/core/asio.hpp>' >"$scratch/asio.hpp"
mkdir "$scratch/asio.hpp.gch"
# shellcheck disable=SC2086  # words
for options in "" "$apart"; do
  "$mpicxx" $flags $options -c -x c++-header "$scratch/asio.hpp" \
    -o "$scratch/asio.hpp.gch/with${options// /_}"
done

# Prints one line for each check: a header and its options.
checks() {
  find include -name '*.hpp' | while read -r header; do
    local options=
    case $header in
      */src.hpp) options=$apart ;;
      include/cohort/*/*) grep -q '^#include <cohort/.*[.]ipp>' "$header" || options=$apart ;;
    esac
    case $header in
      */nccl/src.hpp) echo "$header$options -isystem $double" ;;
      */device/* | */nccl/* | */device.hpp | */nccl.hpp | */gpu.hpp)
        echo "$header$options"
        echo "$header$options -isystem $double"
        ;;
      *) echo "$header$options" ;;
    esac
  done
}
count=$(find include -name '*.hpp' | wc -l)
[ "$count" -gt 0 ]
# shellcheck disable=SC2016  # $@ is for the inner shell
checks | xargs -L 1 -P "$(nproc)" bash -c 'check "$@"' check
echo "$count headers are self-contained, with $double too"

"$mpicxx" -std=c++20 -Iinclude tests/consumer/main.cpp -o "$scratch/consumer"
echo "a program that includes <cohort/cohort.hpp> needs only: $mpicxx -std=c++20 -Iinclude"
