#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# run_tests.sh DIRECTORY CTEST_ARGUMENTS...: runs ctest in the build folder DIRECTORY. What fails is
# run once more, alone:
#
# - If it passes then, it is flaky. The last lines name it, both outputs are kept in build/ci/flaky
#   (or in $FLAKY), and the run goes on. More than two of them fail the run.
# - What crashed, and what a sanitizer complained of, has failed: a second run could only hide it.
#
# The very last line counts as ctest's own does, with what passed the second time among what passed.
set -euo pipefail
directory=$1
shift
kept=${FLAKY:-$(dirname "$0")/../build/ci/flaky}
prefix=$kept/$(basename "$directory")
most=2  # flaky tests
mkdir -p "$kept"
rm -f "$prefix".*.txt
log=$directory/Testing/Temporary/LastTest.log
said=$directory/run_tests.txt
failures=$directory/Testing/Temporary/LastTestsFailed.log
rm -f "$failures"

# A program that a signal of its own ended, as ctest, Catch2, the two launchers and a shell tell it
# (not one that was killed, at its time limit say), and what the sanitizers say.
signals='\*\*\*Exception|SIG(SEGV|ABRT|FPE|ILL) - |exited on signal (4|6|7|8|11)\b|Signal: '
signals+='|Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception'
sanitizers='(Address|Leak|Thread|Memory|UndefinedBehavior)Sanitizer|runtime error: '

# output_of TEST FILE: what ctest has noted of the test, the way it ended included.
output_of() {
  awk -v name="$1" '/^[0-9]+\/[0-9]+ Testing: / { on = $0 == $1 " Testing: " name } on' "$log" >"$2"
  grep -F ": $1 " "$said" | grep -E '\*\*\*' >>"$2" || true
}

status=0
ctest --test-dir "$directory" --output-on-failure "$@" 2>&1 | tee "$said" || status=$?
[ "$status" -ne 0 ] || exit 0
[ -e "$failures" ] || exit "$status"  # none ran, say

total=$(sed -n 's/.* tests failed out of \([0-9]*\)$/\1/p' "$said" | tail -n 1)
flaky=() bad=()
while IFS=: read -r _ name; do
  first=$prefix.$name.first.txt
  output_of "$name" "$first"
  if grep -Eq "$signals|$sanitizers|\*\*\*Not Run" "$first"; then
    bad+=("$name")
    continue
  fi
  printf '\n== once more, alone: %s\n' "$name"
  pattern=${name//./[.]}
  if ctest --test-dir "$directory" --output-on-failure --verbose -R "^$pattern\$" \
    2>&1 | tee "$prefix.$name.again.txt"; then
    flaky+=("$name")
  else
    bad+=("$name")
  fi
done < <(cat "$failures")

printf '\n'
[ ${#flaky[@]} -le "$most" ] || bad+=("${flaky[@]}")
for name in ${flaky[@]+"${flaky[@]}"}; do echo "flaky: $name ($prefix.$name.*.txt)"; done
for name in ${bad[@]+"${bad[@]}"}; do echo "failed: $name"; done
[ ${#flaky[@]} -le "$most" ] || echo "more than $most flaky tests fail the run"
echo "$(((total - ${#bad[@]}) * 100 / total))% tests passed, ${#bad[@]} tests failed out of $total"
[ ${#bad[@]} -eq 0 ]
