#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_self_contained.sh [MPICXX]: every header can be included alone, by a user who includes only
# that one.
#
# 1. clang reads all headers in one run, each as a module of its own, which sees the names and macros of
#    what it includes itself and of nothing else; those of the standard library are modules too. It
#    does so with the bodies (*.ipp) and without. Modules cannot include each other, so a header that
#    another includes behind its last namespace, for who includes that to have the definitions, is
#    left out there. Where no clang is, all headers are compiled as in 2.
# 2. Headers with includes at their end, and the gate of all that is for devices, are compiled one by one
#    with MPICXX. Those that include cohort/core/asio.hpp in the end get that precompiled before all
#    else, as most of the time would go to it. (The src.hpp are compiled by every build of the tests.)
# 3. A file that includes the umbrella and uses nothing of it makes no class of cohort's and runs no
#    coroutine: docs/design/layers.md says what would bring them into every file.
#
# Adapters that need a library are compiled one by one too, with Debian's folders of Eigen and Kokkos, and
# are left out where that is not installed.
#
# The layers device and nccl declare nothing without CUDA and NCCL, so both are done again with the
# declarations of the test doubles. Other versions, and the real headers, are those of
# check_gpu_versions.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
export mpicxx=${1:-mpicxx}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

flags="-std=c++20 -Wall -Wextra -Werror"
apart=" -DCOHORT_SEPARATE_COMPILATION -Wno-subobject-linkage"
double=tests/support/fake_gpu/include
export flags scratch
clang=$(command -v clang++-19 || command -v clang++ || true)

# Writes into $scratch: the headers as they are read in 1; the list of those that include asio.hpp in
# the end; the list of those that are compiled one by one; and the map of modules.
python3 - "$scratch" "$clang" <<'END'
import pathlib, re, sys
scratch, has_clang = pathlib.Path(sys.argv[1]), bool(sys.argv[2])
root = pathlib.Path("include")
included = {}
alone = []
modules = []
adapters = {"cohort/adapters/eigen.hpp", "cohort/adapters/kokkos.hpp"}
for path in sorted(root.rglob("*.[hi]pp")):
    name = str(path.relative_to(root))
    lines = path.read_text().split("\n")
    included[name] = re.findall(r"^#include <(cohort/[^>]+)>", "\n".join(lines), re.M)
    last = max((i for i, line in enumerate(lines) if re.match(r"}.*// namespace", line)), default=-1)
    ends = [i for i, line in enumerate(lines)
            if i > last >= 0 and re.match("#include <cohort/.*[.]hpp>", line)]
    copy = scratch / "include" / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text("\n".join("" if i in ends else line for i, line in enumerate(lines)))
    if path.suffix != ".hpp" or path.name == "src.hpp":
        continue
    if ends or name == "cohort/gpu.hpp" or name in adapters or not has_clang:
        alone.append(name)
    if name not in adapters:
        modules.append(f'  module "{name}" {{ header "{copy}" export * }}')
reached = {"cohort/core/asio.hpp"}
while True:
    more = {one for one, others in included.items() if reached.intersection(others)} - reached
    if not more:
        break
    reached |= more
outside = sorted({one for path in root.rglob("*.[hi]pp")
                  if path.relative_to(root).as_posix() not in adapters
                  for one in re.findall(r"^ *# *include <([^>]+)>", path.read_text(), re.M)
                  if not one.startswith("cohort/")},
                 key=lambda name: (name == "mpi-ext.h", name))  # which is read after mpi.h
(scratch / "outside.hpp").write_text(
    "".join(f"#if __has_include(<{one}>)\n#include <{one}>\n#endif\n" for one in outside))
(scratch / "with_asio").write_text("\n".join(sorted(reached)) + "\n")
(scratch / "alone").write_text("\n".join(alone) + "\n")
(scratch / "cohort").write_text("module cohort {\n" + "\n".join(modules) + "\n}\n")
END

# --- 1 ------------------------------------------------------------------------------------------

# Warnings are for other steps.
with_clang() {
  OMPI_CXX=$clang MPICH_CXX=$clang "$mpicxx" -std=c++20 -w -DASIO_HAS_CO_AWAIT=1 \
    -DASIO_HAS_STD_COROUTINE=1 "$@"
}

# module NAME FOLDER OPTION...: compiles the module NAME of the map of that name.
module() {
  with_clang -ferror-limit=0 -fmodules -fno-implicit-module-maps \
    -Xclang -fmodules-local-submodule-visibility -Xclang -emit-module "-fmodule-name=$1" "${@:3}" \
    -x c++ -c "$2/$1" -o "$2/$1.pcm"
}

# as_modules OPTION...: each header of the standard library is a module, and Asio is one; headers of C
# are read where they are included. -H prints where the headers are.
as_modules() {
  local folder
  folder=$(mktemp -d "$scratch/modules.XXXX")
  cp "$scratch/cohort" "$folder/"
  {
    echo "module outside [system] {"
    with_clang "$@" -H -fshow-skipped-includes -fsyntax-only -x c++ "$scratch/outside.hpp" 2>&1 |
      sed -n 's/^[.] //p' | sort -u |
      awk '/[.]h$|\/cassert$/ { next }
        /\/asio\// { asio = asio "  header \"" $0 "\"\n"; next }
        { print "module \"" $0 "\" { header \"" $0 "\" export * }" }
        END { printf "module asio {\n%s  export *\n}\n", asio }'
    echo "}"
  } >"$folder/outside"
  module outside "$folder" "$@"
  module cohort "$folder" "$@" "-I$scratch/include" "-fmodule-map-file=$folder/outside" \
    "-fmodule-file=outside=$folder/outside.pcm"
}
if [ -n "$clang" ]; then
  ok=yes
  for bodies in -DCOHORT_SEPARATE_COMPILATION -UCOHORT_SEPARATE_COMPILATION; do
    as_modules $bodies &
    one=$!
    as_modules $bodies -isystem "$double" || ok=no
    wait $one || ok=no
  done
  [ $ok = yes ]
fi

# --- 2 ------------------------------------------------------------------------------------------

# check HEADER OPTION...
check() {
  local first=()
  if grep -qxF "$1" "$scratch/with_asio"; then first=(-include "$scratch/asio.hpp"); fi
  # shellcheck disable=SC2086  # words
  "$mpicxx" $flags -Iinclude -fsyntax-only "${@:2}" "${first[@]}" -include "$1" -x c++ /dev/null &&
    return
  echo "not self-contained: $*" >&2
  return 1
}
export -f check

echo '#include <cohort/core/asio.hpp>' >"$scratch/asio.hpp"
mkdir "$scratch/asio.hpp.gch"
# shellcheck disable=SC2086  # words
for options in "" "$apart"; do
  "$mpicxx" $flags -Iinclude $options -c -x c++-header "$scratch/asio.hpp" \
    -o "$scratch/asio.hpp.gch/with${options// /_}"
done

# check_adapter HEADER NEEDS: the line of a check, where the library that it includes is found.
check_adapter() {
  local folders="-isystem /usr/include/eigen3 -isystem /usr/include/trilinos"
  # shellcheck disable=SC2086  # words
  if echo "#include <$2>" | "$mpicxx" -std=c++20 $folders -M -x c++ - >/dev/null 2>&1; then
    echo "$1 $folders"
  else
    echo "left out, as there is no <$2>: $1" >&2
  fi
}

# Prints one line for each check: a header and its options.
checks() {
  local header options
  while read -r header; do
    options=
    case $header in
      cohort/*/*) grep -q '^#include <cohort/.*[.]ipp>' "include/$header" || options=$apart ;;
    esac
    case $header in
      */device/* | */nccl/* | */device.hpp | */nccl.hpp | */gpu.hpp)
        echo "$header$options"
        echo "$header$options -isystem $double"
        ;;
      */adapters/eigen.hpp) check_adapter "$header" Eigen/Core ;;
      */adapters/kokkos.hpp) check_adapter "$header" Kokkos_Core.hpp ;;
      *) echo "$header$options" ;;
    esac
  done <"$scratch/alone"
}
# shellcheck disable=SC2016  # $@ is for the inner shell
checks | xargs -L 1 -P "$(nproc)" bash -c 'check "$@"' check
count=$(find include -name '*.hpp' | wc -l)
[ "$count" -gt 0 ]
echo "$count headers are self-contained, with $double too"

# --- 3 ------------------------------------------------------------------------------------------

echo '#include <cohort/cohort.hpp>' >"$scratch/unused.cpp"
"$mpicxx" -std=c++20 -O0 -Iinclude -c "$scratch/unused.cpp" -o "$scratch/unused.o"
emitted=$(nm -C "$scratch/unused.o" | grep -E 'vtable for cohort::|\[clone [.](actor|destroy)\]' || true)
if [ -n "$emitted" ]; then
  printf 'compiled into every file that includes the umbrella:\n%s\n' "$emitted" >&2
  exit 1
fi
echo "an unused umbrella compiles $(nm "$scratch/unused.o" | grep -c ' [TtWw] ') functions"
