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

# seconds FILE: processor time of one compilation.
seconds() {
  # shellcheck disable=SC2086  # flags are words
  CCACHE_DISABLE=1 bash -c 'TIMEFORMAT="%U %S"; time "$@" >&2' bash \
    "$compiler" -std=c++20 -O0 -I../../include $flags -c "$1" -o "$object" 2>&1 |
    tail -n 1 | awk '{ print $1 + $2 }'
}

round=0
while [ "$round" -lt "$rounds" ]; do
  for file in timer all_reduce umbrella; do
    echo "$file $(seconds "$file.cpp")"
  done
  round=$((round + 1))
done | sort -k 1,1 -k 2,2n | awk '
  { value[$1, ++count[$1]] = $2 }
  function median(name) { return value[name, int((count[name] + 1) / 2)] }
  function row(name, what, target, extra) {
    extra = median(name) - median("timer")
    printf "%-46s %.2f  (+%.2f, target +%.1f: %s)\n", what, median(name), extra, target,
      extra <= target ? "met" : "MISSED"
  }
  END {
    printf "%-46s %.2f\n", "core/asio.hpp, awaits a timer", median("timer")
    row("all_reduce", "collectives/all_reduce.hpp, one all_reduce", 0.6)
    row("umbrella", "cohort.hpp, one all_reduce", 3)
  }'
