#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# expect_failure.sh SECONDS REGEX COMMAND...: succeeds if the command ends within that many seconds,
# with a non-zero status, after printing a line that matches the extended regular expression.
seconds=$1 expected=$2
shift 2
started=$(date +%s)
output=$("$@" 2>&1)
status=$?
took=$(($(date +%s) - started))
printf '%s\n' "$output"
if [ "$status" -eq 0 ]; then
  echo "expect_failure: the command succeeded" >&2
  exit 1
fi
if ! printf '%s\n' "$output" | grep -E -q -e "$expected"; then
  echo "expect_failure: no line matches: $expected" >&2
  exit 1
fi
if [ "$took" -gt "$seconds" ]; then
  echo "expect_failure: it took $took s, the limit is $seconds s" >&2
  exit 1
fi
