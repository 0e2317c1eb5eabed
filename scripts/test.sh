#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
usage="\
Usage: scripts/test.sh [--np N] [--no-install] [--mpi NAME] [--skip REGEX] [-DNAME=VALUE...]
Installs what is missing, builds the tests and examples and runs them on up to N ranks (default 4).
  --skip REGEX   leaves out the tests whose name matches"
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
np=4
skip='^$'
parse_options "$usage
$common_options" "$@"

provide tests
directory=build/test${mpi:+-$mpi}
configure "$directory" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
  -DCOHORT_UNITY_BUILD=ON -DCOHORT_INSTALL_COMPILED=ON -DCOHORT_BUILD_BENCHMARKS=OFF -DCOHORT_TEST_MAX_RANKS="$np"
build "$directory"

say "running the tests on up to $np ranks"
scripts/run_tests.sh "$directory" --no-tests=error -j "$(test_jobs)" -E "$skip"
