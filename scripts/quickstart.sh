#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
usage="\
Usage: scripts/quickstart.sh [--np N] [--no-install] [--mpi NAME] [-DNAME=VALUE...]
Installs what is missing, builds examples/train_digits and trains it on N ranks (default 2)."
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
parse_options "$usage
$common_options" "$@"

provide examples
directory=build/quickstart${mpi:+-$mpi}
configure "$directory" -DCMAKE_BUILD_TYPE=Release -DCOHORT_BUILD_TESTS=OFF -DCOHORT_TEST_HEADER_ONLY=ON \
  -DCOHORT_BUILD_BENCHMARKS=OFF -DCOHORT_WARNINGS_AS_ERRORS=OFF
build "$directory" train_digits

say "training a network on handwritten digits with $np ranks"
MPIEXEC=$mpiexec scripts/mpirun.sh "$np" "$directory/examples/train_digits" examples/data/digits.csv

say "done: $np ranks trained together, each on its share of the digits. What you can do next:"
cat <<TEXT
  scripts/quickstart.sh --np 4                  the same training on 4 ranks
  scripts/mpirun.sh 2 $directory/examples/train_digits --help
  scripts/test.sh                               all tests
  examples/train_digits.cpp                     the program that just ran
TEXT
