#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_self_contained.sh [MPICXX]: compiles every header alone, as a user would who includes only
# that one, and then a whole program with nothing but MPI's compiler wrapper and -Iinclude.
#
# The layers device and nccl declare nothing without CUDA and NCCL, so their headers are compiled
# again with the declarations of the test doubles, with those that say they are CUDA 12.0 and 12.8
# and NCCL 2.18 to 2.27, and with the toolkit itself where it is (CUDA_HOME, or /usr/local/cuda).
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

count=$(find include -name '*.hpp' | wc -l)
[ "$count" -gt 0 ]
# shellcheck disable=SC2016  # $0 is for the inner shell
find include -name '*.hpp' -print0 | xargs -0 -n 1 -P "$(nproc)" bash -c 'check "$0"'
echo "$count headers are self-contained"

double=tests/support/fake_gpu/include
toolkit=${CUDA_HOME:-/usr/local/cuda}/include
[ -e "$toolkit/cuda_runtime.h" ] || toolkit=
for cuda in $double $toolkit; do
  export cuda
  # shellcheck disable=SC2016
  find include/cohort/device include/cohort/nccl include/cohort/gpu.hpp -name '*.hpp' -print0 |
    xargs -0 -n 1 -P "$(nproc)" bash -c 'check "$0" -isystem "$cuda"'
  echo "those of the layers device and nccl are, with $cuda"
done
for version in 12000 12080; do
  check include/cohort/device.hpp -isystem $double -DCUDART_VERSION=$version
done
for version in 18,1 19,3 22,3 24,3 26,2 27,3; do
  check include/cohort/nccl.hpp -isystem $double -DNCCL_MINOR="${version%,*}" \
    -DNCCL_PATCH="${version#*,}"
done

"$mpicxx" -std=c++20 -Iinclude tests/consumer/main.cpp -o "$scratch/consumer"
echo "a program that includes <cohort/cohort.hpp> needs only: $mpicxx -std=c++20 -Iinclude"
