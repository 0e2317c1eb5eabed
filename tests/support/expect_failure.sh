#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# expect_failure.sh [--status N] [--lines N] SECONDS REGEX COMMAND...: succeeds if the command ends
# within that many seconds, with a non-zero status (that one), after printing a line that matches
# the extended regular expression.
#
# With --lines all ranks together write at most so many lines to stderr. Launchers add lines of
# their own, so the ranks write to the file $COHORT_TEST_STDERR, which the program must do itself;
# what MPI adds there does not count: the line of MPICH's MPI_Abort, and "[host:process] ..." of
# Open MPI, whose ranks may say that others are gone.
wanted= most= written=
while :; do
  case $1 in
    --status) wanted=$2 ;;
    --lines) most=$2 ;;
    *) break ;;
  esac
  shift 2
done
seconds=$1 expected=$2
shift 2
if [ -n "$most" ]; then
  written=$(mktemp)
  trap 'rm -f "$written"' EXIT
  export COHORT_TEST_STDERR="$written"
fi
started=$(date +%s)
output=$("$@" 2>&1)
status=$?
took=$(($(date +%s) - started))
if [ -n "$most" ]; then
  lines=$(grep -c -v -E 'MPI_Abort\(MPI_COMM_WORLD, 1\)|^\[[^] ]+:[0-9]+\]' "$written")
  output="$output
$(cat "$written")"
fi
printf '%s\n' "$output"
if [ "$status" -eq 0 ]; then
  echo "expect_failure: the command succeeded" >&2
  exit 1
fi
if [ -n "$wanted" ] && [ "$status" -ne "$wanted" ]; then
  echo "expect_failure: the status is $status, not $wanted" >&2
  exit 1
fi
if ! printf '%s\n' "$output" | grep -E -q -e "$expected"; then
  echo "expect_failure: no line matches: $expected" >&2
  exit 1
fi
if [ -n "$most" ] && [ "$lines" -gt "$most" ]; then
  echo "expect_failure: the ranks wrote $lines lines, the limit is $most" >&2
  exit 1
fi
if [ "$took" -gt "$seconds" ]; then
  echo "expect_failure: it took $took s, the limit is $seconds s" >&2
  exit 1
fi
