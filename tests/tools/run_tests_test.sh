#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# What scripts/run_tests.sh does with tests that fail once, always, by a signal or a sanitizer.
set -euo pipefail
script=$(cd "$(dirname "$0")/../../scripts" && pwd)/run_tests.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export FLAKY=$scratch/flaky
wrong=0

# project LINE...: a build folder with these tests, NAME COMMAND, of which `once COMMAND` is a test
# that ends with COMMAND's status the first time and then passes.
project() {
  rm -rf "$scratch/build" "$FLAKY"
  mkdir "$scratch/build"
  cat >"$scratch/once" <<'TEXT'
if [ -e "$1" ]; then echo "the second time"; exit 0; fi
touch "$1"
echo "the first time"
eval "$2"
TEXT
  local line name
  for line in "$@"; do
    name=${line%% *}
    cat <<TEXT
add_test("$name" bash -c [[once() { exec bash "$scratch/once" "$scratch/build/$name.ran" "\$*"; }
  ${line#* }]])
TEXT
  done >"$scratch/build/CTestTestfile.cmake"
}

# expect STATUS REGEX...: the script ends so, and its output has a line for each expression.
expect() {
  local status=0 line
  "$script" "$scratch/build" -j 2 >"$scratch/output" 2>&1 || status=$?
  [ "$status" -eq "$1" ] || complain "status $status, not $1"
  shift
  for line in "$@"; do
    grep -Eq -- "$line" "$scratch/output" || complain "no line matches: $line"
  done
}
without() { ! grep -Eq -- "$1" "$scratch/output" || complain "a line matches: $1"; }
complain() {
  echo "$what: $*"
  sed 's/^/  | /' "$scratch/output"
  wrong=1
}

what="all pass"
project "passes true"
expect 0 '^100% tests passed, 0 tests failed out of 1$'
without 'flaky'

what="a test that fails once is flaky, and both outputs are kept"
project "passes true" "layer.theme.np2 once 'false'"
expect 0 '^flaky: layer.theme.np2 ' '^100% tests passed, 0 tests failed out of 2$'
kept=$FLAKY/build.layer.theme.np2
grep -q "the first time" "$kept.first.txt" || complain "the first output is lost"
grep -q "the second time" "$kept.again.txt" || complain "the second output is lost"

what="a test that fails twice has failed"
project "passes true" "fails false"
expect 1 '^failed: fails$' '^50% tests passed, 1 tests failed out of 2$' '^== once more, alone: fails$'
without '^flaky'

what="three flaky tests fail the run"
project "one once 'false'" "two once 'false'" "three once 'false'"
expect 1 '^flaky: one ' '^flaky: two ' '^flaky: three ' '^0% tests passed, 3 tests failed out of 3$'

what="a signal is not tried again, whoever tells of it"
project "crashes once 'kill -SEGV \$\$'" "aborts once 'kill -ABRT \$\$'" \
  "openmpi once 'echo mpiexec noticed that process rank 1 exited on signal 11; false'" \
  "mpich once 'echo YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Aborted; false'" \
  "catch once 'echo SIGSEGV - Segmentation violation signal; false'"
expect 1 '^failed: crashes$' '^failed: aborts$' '^failed: openmpi$' '^failed: mpich$' '^failed: catch$'
without '^flaky|once more'

what="what was killed at its time limit, or by the end of its job, is tried again"
project "slow once 'echo mpiexec noticed that process rank 1 exited on signal 9; false'" \
  "ended once 'echo due to a fatal error condition: SIGTERM - Termination request signal; false'"
expect 0 '^flaky: slow ' '^flaky: ended '

what="what a sanitizer says is not tried again"
project "addresses once 'echo ==7==ERROR: AddressSanitizer: heap-use-after-free; false'" \
  "races once 'echo WARNING: ThreadSanitizer: data race; false'" \
  "undefined once 'echo file.cpp:3:5: runtime error: signed integer overflow; false'"
expect 1 '^failed: addresses$' '^failed: races$' '^failed: undefined$'
without '^flaky|once more'

what="no test at all is an error if ctest is told so"
project
"$script" "$scratch/build" --no-tests=error >"$scratch/output" 2>&1 && complain "status 0"
exit "$wrong"
