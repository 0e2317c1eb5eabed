#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_self_contained.sh [MPICXX]: compiles every header alone, as a user would who includes only
# that one, and then a whole program with nothing but MPI's compiler wrapper and -Iinclude.
set -euo pipefail
cd "$(dirname "$0")/.."
export mpicxx=${1:-mpicxx}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

check() {
  "$mpicxx" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Iinclude -include "${1#include/}" \
    -x c++ /dev/null && return
  echo "not self-contained: $1" >&2
  return 1
}
export -f check

count=$(find include -name '*.hpp' | wc -l)
[ "$count" -gt 0 ]
# shellcheck disable=SC2016  # $0 is for the inner shell
find include -name '*.hpp' -print0 | xargs -0 -n 1 -P "$(nproc)" bash -c 'check "$0"'
echo "$count headers are self-contained"

"$mpicxx" -std=c++20 -Iinclude tests/consumer/main.cpp -o "$scratch/consumer"
echo "a program that includes <cohort/cohort.hpp> needs only: $mpicxx -std=c++20 -Iinclude"
