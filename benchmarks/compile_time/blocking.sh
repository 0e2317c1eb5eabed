#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# blocking.sh [ROUNDS]: what a file costs that takes a communicator and blocks: seconds of user time of
# g++ -O2, header-only and with the definition of COHORT_SEPARATE_COMPILATION, where the usual verbs
# come from a library. The least of all rounds, by turns and without ccache, and its ratio over a file
# that includes <mpi.h> and standard headers (mpi.cpp lists them) and calls MPI_Allreduce.
#
# CXX and MPICXX choose the compiler: common.sh.
cd "$(dirname "$0")" || exit 1
rounds=${1:-7}
# shellcheck source=benchmarks/compile_time/common.sh
. ./common.sh
describe_compiler

# cost ROW OPTION...: of user time only
cost() {
  row=$1
  shift
  if taken=$(times_of -O2 -c "$@"); then
    echo "$row ${taken% *}" >>"$values"
  else
    echo "$row does not compile" >&2
  fi
}

round=0
while [ "$round" -lt "$rounds" ]; do
  cost mpi mpi.cpp
  cost header_only blocking.cpp
  cost compiled blocking.cpp -DCOHORT_SEPARATE_COMPILATION
  round=$((round + 1))
done
awk '
  !($1 in least) || $2 < least[$1] { least[$1] = $2 }
  function row(name, what, target, ratio) {
    ratio = least[name] / least["mpi"]
    printf "%-40s %.2f s, %.2f x  target %s: %s\n", what, least[name], ratio, target,
      ratio <= target + 0 ? "met" : "MISSED"
  }
  END {
    printf "%-40s %.2f s\n", "<mpi.h> and standard headers", least["mpi"]
    row("header_only", "cohort/blocking.hpp, header-only", "3")
    row("compiled", "the same with the library", "1.7")
  }' "$values"
