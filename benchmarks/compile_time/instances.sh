#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# instances.sh [ROUNDS]: what the classes would cost that are templates with one instance
# (docs/design/layers.md) if they were none: seconds of processor time that g++ needs to read the
# umbrella header-only, and more seconds if it also instantiates one of them, as it would the body of
# any unused inline function. The least of all rounds, by turns and without ccache.
#
# CXX and MPICXX choose the compiler: common.sh.
cd "$(dirname "$0")" || exit 1
rounds=${1:-3}
# shellcheck source=benchmarks/compile_time/common.sh
. ./common.sh

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
    if taken=$(echo "$text" | times_of -O0 -fsyntax-only -x c++ -); then
      echo "$class $taken" >>"$values"
    else
      echo "$class does not compile" >&2
    fi
  done
  round=$((round + 1))
done
awk '{ seconds = $2 + $3 } !($1 in least) || seconds < least[$1] { least[$1] = seconds }
  END { printf "%-40s %6.2f s\n", "the umbrella", least["none"]
    for (class in least) if (class != "none")
      printf "%-40s +%5.2f s\n", class, least[class] - least["none"] | "sort" }' "$values"
