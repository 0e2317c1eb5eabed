#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# run.sh [ROUNDS]: what a translation unit costs to compile, g++ -O0, by turns and without ccache.
# CXX and MPICXX choose the compiler (g++) and the wrapper that knows MPI's flags (mpicxx).
cd "$(dirname "$0")" || exit 1
rounds=${1:-7}
compiler=${CXX:-g++}
# The wrapper's own flags, so that the compiler is timed without the wrapper.
flags=$("${MPICXX:-mpicxx}" --showme:compile 2>/dev/null ||
  "${MPICXX:-mpicxx}" -compile-info | cut -d ' ' -f 2-)
object=$(mktemp)
trap 'rm -f "$object"' EXIT

"$compiler" --version | head -n 1
sed -n 's/^model name[^:]*: /cpu: /p' /proc/cpuinfo | head -n 1
echo "seconds of processor time, median of $rounds"

# seconds FILE OPTION: processor time of one compilation.
seconds() {
  # shellcheck disable=SC2086  # flags are words
  CCACHE_DISABLE=1 bash -c 'TIMEFORMAT="%U %S"; time "$@" >&2' bash \
    "$compiler" -std=c++20 -O0 -I../../include $flags $2 -c "$1" -o "$object" 2>&1 |
    tail -n 1 | awk '{ print $1 + $2 }'
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
