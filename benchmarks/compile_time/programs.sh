#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# programs.sh [ROUNDS]: the processor time of compiling whole programs, as a ratio over a program that
# awaits a timer of Asio at -O0, by turns and without ccache; header-only, and with the definition of
# COHORT_SEPARATE_COMPILATION, where the bodies come from a library. Says which targets are met.
#
# CXX and MPICXX choose the compiler: common.sh. ONLY is a regular expression of the rows that are
# measured. The memory is that of the largest process of a
# compilation; it needs Python 3.
cd "$(dirname "$0")" || exit 1
rounds=${1:-3}
# shellcheck source=benchmarks/compile_time/common.sh
. ./common.sh
describe_compiler

# row|file|options|target header-only|target compiled|what
rows='timer|timer.cpp|-O0 -DWHOLE_PROGRAM|||awaits a timer of Asio
unused|unused.cpp|-O0|2.5|2.0|the umbrella, nothing used
direct|all_reduce.cpp|-O0 -DWHOLE_PROGRAM|1.7|1.5|communicator, one all_reduce, own headers
coordinator|coordinator.cpp|-O0|6.5|3|the umbrella, coordinator, one named all_reduce
coordinator_O2|coordinator.cpp|-O2|11|4|the same at -O2
rendezvous|rendezvous.cpp|-O0|5|2.5|rendezvous, send and receive
cluster|cluster.cpp|-O0|8|3.5|cluster: launch, call, serve
nccl|nccl.cpp|-O0 -isystem ../../tests/support/fake_gpu/include|||NCCL: communicator, one all_reduce'

# cost FILE OPTIONS: seconds of processor time of one compilation; fails where it does not compile.
cost() {
  # shellcheck disable=SC2086  # they are words
  taken=$(times_of $2 -c "$1") || return 1
  echo "$taken" | awk '{ print $1 + $2 }'
}

# peak FILE OPTIONS: gigabytes of the largest process of one compilation.
peak() {
  # shellcheck disable=SC2086
  CCACHE_DISABLE=1 python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6, 3))' \
    "$compiler" -std=c++20 -I../../include $flags $2 -c "$1" -o "$object"
}

round=0
while [ "$round" -lt "$rounds" ]; do
  echo "$rows" | grep -E "^timer|^(${ONLY:-.*})[|]" | while IFS='|' read -r row file options _; do
    for way in header compiled; do
      [ "$way" = compiled ] && options="$options -DCOHORT_SEPARATE_COMPILATION"
      seconds=$(cost "$file" "$options" </dev/null) || echo "$file does not compile: $way" >&2
      echo "$row $way $seconds" >>"$values"
    done
  done
  round=$((round + 1))
done
if command -v python3 >/dev/null && echo coordinator | grep -q -E "^(${ONLY:-.*})$"; then
  echo "memory header $(peak coordinator.cpp -O0)" >>"$values"
  echo "memory compiled $(peak coordinator.cpp '-O0 -DCOHORT_SEPARATE_COMPILATION')" >>"$values"
fi

echo "processor time over that of the timer, medians of $rounds; target in brackets"
printf '%-50s %-22s %s\n' '' header-only compiled
{ sort -k 1,1 -k 2,2 -k 3,3n "$values"; echo; echo "$rows"
  echo 'memory|||0.8|0.45|peak memory of the coordinator at -O0, GB'; } | awk '
  function median(name) { return value[name, int((count[name] + 1) / 2)] }
  function judged(name, target, base, is) {
    is = median(name) / base
    if (target == "") return sprintf("%.2f s", is * base)
    return sprintf("%.2f (%s: %s)", is, target, is <= target + 0 ? "met" : "MISSED")
  }
  NF == 0 { FS = "|"; $0 = $0; rows = 1; next }
  !rows { name = $1 " " $2; value[name, ++count[name]] = $3; next }
  {
    split($0, of, "|")
    if (!count[of[1] " header"]) next
    base = of[1] == "memory" ? 1 : median("timer header")
    printf "%-50s %-22s %s\n", of[6], judged(of[1] " header", of[4], base),
      judged(of[1] " compiled", of[5], base)
  }'
