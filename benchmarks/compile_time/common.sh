# shellcheck shell=sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# What the scripts beside it share, which are in this folder when they read it. CXX and MPICXX choose
# the compiler (g++) and the wrapper that knows MPI's flags (mpicxx). `values` is a file for figures.
compiler=${CXX:-g++}
# The wrapper's own flags, so that the compiler is timed without the wrapper.
flags=$("${MPICXX:-mpicxx}" --showme:compile 2>/dev/null ||
  "${MPICXX:-mpicxx}" -compile-info | cut -d ' ' -f 2-)
object=$(mktemp)
values=$(mktemp)
trap 'rm -f "$object" "$values"' EXIT

describe_compiler() {
  "$compiler" --version | head -n 1
  sed -n 's/^model name[^:]*: /cpu: /p' /proc/cpuinfo | head -n 1
}

# times_of [OPTION...]: seconds of user and of system time of one compilation, without ccache; fails where
# it does not compile. The text may come from the standard input.
times_of() {
  # shellcheck disable=SC2086  # flags are words
  CCACHE_DISABLE=1 bash -c 'TIMEFORMAT="%U %S"; time "$@" >&2 || echo failed >&2' bash \
    "$compiler" -std=c++20 -I../../include $flags "$@" -o "$object" 2>&1 |
    awk '/^failed|error/ { bad = 1 } { last = $0 } END { print last; exit bad }'
}
