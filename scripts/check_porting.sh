#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_porting.sh [--write]: whether the diff in docs/porting.md is that of the two programs. With
# --write it is put there.
cd "$(dirname "$0")/.." || exit 1
page=docs/porting.md
made=$(diff -U 2 examples/raw_mpi_heat.c examples/ported_heat.cpp | sed 1,2d)
shown=$(awk '/^```/ { on = /^```diff/; next } on' "$page")

if [ "${1-}" = --write ]; then
  new=$(MADE=$made awk '
    /^```diff/ { print; print ENVIRON["MADE"]; inside = 1; next }
    /^```/ { inside = 0 }
    !inside' "$page") && printf '%s\n' "$new" >"$page"
elif [ -z "$made" ] || [ "$made" != "$shown" ]; then
  echo "$page does not show the diff of the two programs; see scripts/check_porting.sh --write" >&2
  exit 1
fi
