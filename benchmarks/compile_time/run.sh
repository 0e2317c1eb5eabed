#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# run.sh [ROUNDS]: what a translation unit costs to compile, g++ -O0, by turns and without ccache.
# CXX and MPICXX choose the compiler: common.sh.
cd "$(dirname "$0")" || exit 1
rounds=${1:-7}
# shellcheck source=benchmarks/compile_time/common.sh
. ./common.sh
describe_compiler
echo "seconds of processor time, median of $rounds"

# seconds FILE OPTION: processor time of one compilation.
seconds() {
  # shellcheck disable=SC2086  # they are words
  times_of -O0 $2 -c "$1" | awk '{ print $1 + $2 }'
}

# Each file twice: one that awaits in a coroutine, and a whole program, which also makes the loop,
# the communicator and its engine.
round=0
while [ "$round" -lt "$rounds" ]; do
  for file in timer all_reduce umbrella; do
    echo "$file $(seconds "$file.cpp" "")"
    echo "$file+ $(seconds "$file.cpp" -DWHOLE_PROGRAM)"
  done
  round=$((round + 1))
done | sort -k 1,1 -k 2,2n | awk '
  { value[$1, ++count[$1]] = $2 }
  function median(name) { return value[name, int((count[name] + 1) / 2)] }
  function row(name, base, what, target, extra) {
    extra = median(name) - median(base)
    printf "%-46s %.2f  (+%.2f", what, median(name), extra
    if (target != "") printf ", target +%.1f: %s", target, extra <= target ? "met" : "MISSED"
    printf ")\n"
  }
  END {
    printf "%-46s %.2f\n", "core/asio.hpp, awaits a timer", median("timer")
    row("all_reduce", "timer", "collectives/all_reduce.hpp, one all_reduce", 0.6)
    row("umbrella", "timer", "cohort.hpp, one all_reduce", 3)
    printf "%-46s %.2f\n", "  whole program: a timer", median("timer+")
    row("all_reduce+", "timer+", "  one all_reduce", "")
    row("umbrella+", "timer+", "  cohort.hpp, one all_reduce", "")
  }'
