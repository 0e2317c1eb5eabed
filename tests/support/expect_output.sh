#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# expect_output.sh REGEX COMMAND...: succeeds if the command does and printed a line that matches
# the extended regular expression.
expected=$1
shift
output=$("$@" 2>&1)
status=$?
printf '%s\n' "$output"
[ "$status" -eq 0 ] || exit "$status"
if ! printf '%s\n' "$output" | grep -E -q -e "$expected"; then
  echo "expect_output: no line matches: $expected" >&2
  exit 1
fi
