#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# blocking.sh [ROUNDS]: what a file costs that takes a communicator and blocks: seconds of user time of
# g++ -O2, header-only and with the definition of COHORT_SEPARATE_COMPILATION, where the usual verbs
# come from a library. The least of all rounds, by turns and without ccache, and its ratio over a file
# that includes <mpi.h> and standard headers (mpi.cpp lists them) and calls MPI_Allreduce.
#
# CXX and MPICXX choose the compiler (g++) and the wrapper that knows MPI's flags (mpicxx).
cd "$(dirname "$0")" || exit 1
rounds=${1:-7}
compiler=${CXX:-g++}
flags=$("${MPICXX:-mpicxx}" --showme:compile 2>/dev/null ||
  "${MPICXX:-mpicxx}" -compile-info | cut -d ' ' -f 2-)
object=$(mktemp)
values=$(mktemp)
trap 'rm -f "$object" "$values"' EXIT

"$compiler" --version | head -n 1
sed -n 's/^model name[^:]*: /cpu: /p' /proc/cpuinfo | head -n 1

# cost ROW FILE [OPTION]
cost() {
  # shellcheck disable=SC2086  # flags are words
  CCACHE_DISABLE=1 bash -c 'TIMEFORMAT=%U; time "$@" >&2' bash \
    "$compiler" -std=c++20 -O2 -I../../include $flags ${3:-} -c "$2" -o "$object" 2>&1 |
    awk -v row="$1" '{ last = $1 } END { print row, last }' >>"$values"
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
