// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the layer graph, for one file of a program: see core/config.hpp.

#ifndef COHORT_SEPARATE_COMPILATION
#error \
    "a file that includes a src.hpp is compiled with COHORT_SEPARATE_COMPILATION, like all others"
#endif

#include <cohort/graph.hpp>
#include <cohort/graph/dot.hpp>
#include <cohort/graph/machine/node/announcer.ipp>
#include <cohort/graph/machine/node/awaits.ipp>
#include <cohort/graph/machine/node/ends.ipp>
#include <cohort/graph/machine/node/front.ipp>
#include <cohort/graph/machine/node/home.ipp>
#include <cohort/graph/machine/node/receive.ipp>
#include <cohort/graph/machine/node/sentences.ipp>
#include <cohort/graph/machine/node/stall.ipp>
#include <cohort/graph/machine/node/take.ipp>
#include <cohort/graph/machine/node/transfer.ipp>
#include <cohort/graph/machine/node/values.ipp>
#include <cohort/graph/machine/node/wave.ipp>
#include <cohort/graph/recording.ipp>
#include <cohort/graph/result_store.ipp>
#include <cohort/graph/runtime/rank_host.hpp>
#include <cohort/graph/schedule.hpp>
#include <cohort/graph/task_hash.ipp>

namespace cohort::graph {

template class machine::basic_node<>;
template std::shared_ptr<runtime::host> runtime::make_host<void>(const communicator&,
                                                                 const tasks_options&);

}  // namespace cohort::graph
