#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# instances.sh [ROUNDS]: what the classes would cost that are templates with one instance
# (docs/design/layers.md) if they were none: seconds of processor time that g++ needs to read the
# umbrella header-only, and more seconds if it also instantiates one of them, as it would the body of
# any unused inline function. The least of all rounds, by turns and without ccache.
#
# CXX and MPICXX choose the compiler (g++) and the wrapper that knows MPI's flags (mpicxx).
cd "$(dirname "$0")" || exit 1
rounds=${1:-3}
compiler=${CXX:-g++}
flags=$("${MPICXX:-mpicxx}" --showme:compile 2>/dev/null ||
  "${MPICXX:-mpicxx}" -compile-info | cut -d ' ' -f 2-)
values=$(mktemp)
trap 'rm -f "$values"' EXIT

classes='none
cluster::basic_call_client<void>
cluster::basic_call_server<void>
cluster::basic_child_process<void>
cluster::basic_manager<void>
cluster::basic_output_queue<void>
cluster::basic_reception<void>
cluster::basic_worker<void>
coordination::basic_data_plane<void>
coordination::negotiation<void>
meeting::basic_node<>
meeting::exchange<void>
protocol::basic_node<>'

round=0
while [ "$round" -lt "$rounds" ]; do
  for class in $classes; do
    text='#include <cohort/cohort.hpp>'
    [ "$class" = none ] || text="$text
template class cohort::$class;"
    # shellcheck disable=SC2086  # they are words
    echo "$text" | CCACHE_DISABLE=1 bash -c 'TIMEFORMAT="%U %S"; time "$@" || echo failed >&2' bash \
      "$compiler" -std=c++20 -I../../include $flags -O0 -fsyntax-only -x c++ - 2>&1 |
      awk -v class="$class" '/^failed|error/ { bad = 1 } { last = $1 + $2 }
        END { if (bad) print class " does not compile" | "cat >&2"; else print class, last }' >>"$values"
  done
  round=$((round + 1))
done
awk '!($1 in least) || $2 < least[$1] { least[$1] = $2 }
  END { printf "%-40s %6.2f s\n", "the umbrella", least["none"]
    for (class in least) if (class != "none")
      printf "%-40s +%5.2f s\n", class, least[class] - least["none"] | "sort" }' "$values"
