#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_self_contained.sh [MPICXX]: compiles every header alone, as a user would who includes only
# that one, and then a whole program with nothing but MPI's compiler wrapper and -Iinclude.
#
# The layers device and nccl declare nothing without CUDA and NCCL, so their headers are compiled
# again with the declarations of the test doubles. Those of all of a layer are compiled with doubles
# that say they are CUDA 12.0 and 12.8 and NCCL 2.18 to 2.27, and with the toolkit itself where it is
# (CUDA_HOME, or /usr/local/cuda).
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
toolkit=${CUDA_HOME:-/usr/local/cuda}/include
[ -e "$toolkit/cuda_runtime.h" ] || toolkit=

# Prints one line for each check: a header and its options.
checks() {
  local version
  for version in 18,1 19,3 22,3 24,3 26,2 27,3; do
    echo "include/cohort/nccl.hpp -isystem $double -DNCCL_MINOR=${version%,*} -DNCCL_PATCH=${version#*,}"
  done
  for version in 12000 12080; do
    echo "include/cohort/device.hpp -isystem $double -DCUDART_VERSION=$version"
  done
  # One header with all the others: that each is self-contained was seen with the doubles.
  [ -z "$toolkit" ] || echo "include/cohort/gpu.hpp -isystem $toolkit"
  find include/cohort/{device,nccl} include/cohort/{device,nccl,gpu}.hpp -name '*.hpp' |
    sed "s|\$| -isystem $double|"
  find include -name '*.hpp'
}
count=$(find include -name '*.hpp' | wc -l)
[ "$count" -gt 0 ]
# shellcheck disable=SC2016  # $@ is for the inner shell
checks | xargs -L 1 -P "$(nproc)" bash -c 'check "$@"' check
echo "$count headers are self-contained, with $double too${toolkit:+; <cohort/gpu.hpp> compiles with $toolkit}"

"$mpicxx" -std=c++20 -Iinclude tests/consumer/main.cpp -o "$scratch/consumer"
echo "a program that includes <cohort/cohort.hpp> needs only: $mpicxx -std=c++20 -Iinclude"
