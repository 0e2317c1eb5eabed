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
# The layers device and nccl declare nothing without CUDA and NCCL, so their headers are compiled
# again with the declarations of the test doubles. Other versions, and the real headers, are those of
# check_gpu_versions.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
export mpicxx=${1:-mpicxx}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# check HEADER OPTION...
check() {
  "$mpicxx" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Iinclude "${@:2}" \
    -include "${1#include/}" -x c++ /dev/null && return
  echo "not self-contained: $*" >&2
  return 1
}
export -f check

double=tests/support/fake_gpu/include
apart=" -DCOHORT_SEPARATE_COMPILATION -Wno-subobject-linkage"

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
