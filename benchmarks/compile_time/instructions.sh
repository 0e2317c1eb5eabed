#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# instructions.sh [FOLDER]: does it cost anything at run time to compile the library once? Builds
# bench_latency, bench_negotiation and bench_fusion at -O3 header-only and with cohort::compiled (in
# FOLDER, build/instructions by default), and counts with callgrind how many instructions a chunk of
# each takes on one rank: the difference between a long run and a short one. Wanted: at most 2 % more.
# Runs of bench_fusion have one of three totals, in both ways: repeat its row, or compare runs that are
# alike.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build/instructions}
mkdir -p "$folder"

for way in header_only compiled; do
  only=OFF
  [ "$way" = compiled ] || only=ON
  cmake -S . -B "$folder/$way" -DCMAKE_BUILD_TYPE=Release -DCOHORT_TEST_HEADER_ONLY=$only \
    -DCOHORT_BUILD_TESTS=OFF -DCOHORT_BUILD_EXAMPLES=OFF >"$folder.log" 2>&1
  cmake --build "$folder/$way" -j "$(nproc)" \
    --target bench_latency bench_negotiation bench_fusion >>"$folder.log" 2>&1
done

# count WAY PROGRAM ARGUMENT...: instructions of all that rank 0 does.
count() {
  local program=$folder/$1/benchmarks/$2
  scripts/mpirun.sh 1 valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "${@:3}" 2>&1 |
    sed -n 's/.*Collected : *\([0-9]*\).*/\1/p'
}

# per_chunk WAY SHORT LONG PROGRAM OPTION ARGUMENT...: OPTION takes the number of chunks.
per_chunk() {
  local way=$1 short=$2 long=$3 few many
  few=$(count "$way" "$4" "${@:6}" "$5" "$short")
  many=$(count "$way" "$4" "${@:6}" "$5" "$long")
  echo $(((many - few) / (long - short)))
}

printf '%-20s %16s %16s %8s\n' "instructions" "header-only" compiled ratio
while read -r short long program words; do
  arguments=()
  eval "arguments=($words)"
  whole=$(per_chunk header_only "$short" "$long" "$program" "${arguments[@]}")
  once=$(per_chunk compiled "$short" "$long" "$program" "${arguments[@]}")
  awk -v p="$program" -v h="$whole" -v c="$once" \
    'BEGIN { printf "%-20s %16d %16d %8.3f\n", p, h, c, c / h }'
done <<'ROWS'
10 30 bench_latency --chunks --only '8 B'
10 30 bench_negotiation --chunks --rounds 50
5 15 bench_fusion --turns --only packs
ROWS
