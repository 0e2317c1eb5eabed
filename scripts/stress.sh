#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# stress.sh [REGEX] [MINUTES]: runs the tests whose names match (all) again and again, for 10 minutes
# or MINUTES, on a machine that is never idle: one busy loop for each core or, where there are many
# tests, the others of them; pauses of threads at calls where others may overtake them
# (tests/support/random_stops.cpp); now and then a whole process is stopped. Prints how often each test has failed in how many runs; exits with 1 if one has.
#
# What fails here and nowhere else hopes for the scheduler: the test, or the code.
#
#   BUILD   a build folder that is there (default: build/stress, which is configured, and built as
#           far as these tests need it). Not one with sanitizers, which want to be the first library.
#   SEED    of the pauses in the first round; each round takes the next number (default: the time)
#   ROUNDS  how many rounds at least, however long they take (default 1)
#
# Outputs of failures, with the seed in their names, are kept in the folder stress of the build
# folder.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
pattern=${1:-.}
minutes=${2:-10}
seed=${SEED:-$(date +%s)}
least=${ROUNDS:-1}
# What only compiles, checks the source tree, or computes on one thread.
left_out='^(tools|compile_fail|consumer|protocol)[.]|^graph[.].*jobs?'
# Programs whose tests stop a process themselves; it may not be let go on too early.
unstopped='/(coordinator_verbs|cluster_(adopt|launcher|workers))_test$'

directory=${BUILD:-build/stress}
if [ -z "${BUILD-}" ]; then
  provide tests
  configure "$directory" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
    -DCOHORT_UNITY_BUILD=ON -DCOHORT_BUILD_BENCHMARKS=OFF -DCOHORT_TEST_PATIENCE=4
  mapfile -t programs < <(ctest --test-dir "$directory" -N -V -R "$pattern" -E "$left_out" |
    grep -oE "$PWD/$directory/(tests|examples)/[^ \"]+" | sed 's|.*/||' | sort -u |
    comm -12 - <(cmake --build "$directory" --target help |
      sed -E 's/^[.]{3} //; s/:.*//' | sort -u))
  [ ${#programs[@]} -gt 0 ] || die "no test matches $pattern"
  build "$directory" "${programs[@]}"
fi
cd "$directory"
directory=$PWD
work=$directory/stress
rm -rf "$work"
mkdir -p "$work/pids"
"${CXX:-c++}" -std=c++20 -O1 -shared -fPIC -fvisibility=hidden \
  "$OLDPWD/tests/support/random_stops.cpp" -o "$work/random_stops.so" -ldl

helpers=()  # processes of this script
end_helpers() {
  [ ${#helpers[@]} -eq 0 ] || kill "${helpers[@]}" 2>/dev/null || true
  wait "${helpers[@]-}" 2>/dev/null || true
}
trap end_helpers EXIT
trap 'exit 130' INT TERM
tests=$(ctest -N -R "$pattern" -E "$left_out" | sed -n 's/^Total Tests: //p')
loops=$(nproc) jobs=$(test_jobs)
if [ "$tests" -gt 40 ]; then loops=0 jobs=$((8 * $(nproc))); fi
for ((core = 0; core < loops; ++core)); do
  (while :; do :; done) &
  helpers+=($!)
done

# Stops a process that has left its number, and lets it go on. Ends with none stopped.
stop_processes() {
  local pid='' program all
  trap '[ -z "$pid" ] || kill -CONT "$pid" 2>/dev/null; exit 0' TERM
  RANDOM=$((seed % 32768))
  while :; do
    sleep "$(printf '0.%03d' $((RANDOM % 100)))"
    all=("$work"/pids/*)
    pid=$(basename "${all[RANDOM % ${#all[@]}]}")
    program=$(readlink "/proc/$pid/exe" 2>/dev/null) || true
    if [[ $program != "$directory"/*_test || $program =~ $unstopped ]]; then
      rm -f "$work/pids/$pid"  # it has ended, or is not to be stopped
      pid=''
      continue
    fi
    kill -STOP "$pid" 2>/dev/null || true
    sleep "$(printf '0.%03d' $((RANDOM % 300)))"
    kill -CONT "$pid" 2>/dev/null || true
    pid=''
  done
}
stop_processes &
helpers+=($!)

declare -A runs=() failures=()
first=$seed
deadline=$((SECONDS + $(awk "BEGIN { print int($minutes * 60) }")))
say "stress of '$pattern': $tests tests, seed $seed, $loops busy loops, $jobs ranks, $minutes minutes"
for ((round = 1; round <= least || SECONDS < deadline; ++round, ++seed)); do
  LD_PRELOAD=$work/random_stops.so COHORT_STOPS_SEED=$seed COHORT_STOPS_PIDS=$work/pids \
    ctest --test-dir "$directory" --output-on-failure --schedule-random --no-tests=error \
    -j "$jobs" -R "$pattern" -E "$left_out" >"$work/round.txt" 2>&1 || true
  grep -qE 'tests failed out of' "$work/round.txt" || { cat "$work/round.txt"; exit 1; }
  while read -r name how; do
    runs[$name]=$((${runs[$name]-0} + 1))
    [ "$how" != failed ] || failures[$name]+=" $seed"
  done < <(sed -nE \
    -e 's|^ *[0-9]+/[0-9]+ Test +#[0-9]+: ([^ ]+) .* Passed .*|\1 passed|p' \
    -e 's|^ *[0-9]+/[0-9]+ Test +#[0-9]+: ([^ ]+) .*[*]{3}[FTEN].*|\1 failed|p' \
    "$work/round.txt")
  bad=$(sed -n 's/.* \([0-9]*\) tests failed out of.*/\1/p' "$work/round.txt")
  [ "$bad" -eq 0 ] || cp "$work/round.txt" "$work/failures.$seed.txt"
  echo "round $round, seed $seed: $bad failed"
done

say "failures of runs, seeds $first to $((seed - 1))"
for name in $(printf '%s\n' "${!runs[@]}" | sort); do
  read -r -a seeds <<<"${failures[$name]-}"
  printf '%4d of %4d  %s%s\n' "${#seeds[@]}" "${runs[$name]}" "$name" \
    "${failures[$name]:+  (seeds${failures[$name]}: $work/failures.SEED.txt)}"
done
[ ${#failures[@]} -eq 0 ]
