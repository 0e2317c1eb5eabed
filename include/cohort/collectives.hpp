// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer collectives: MPI's collectives, one header for each verb. A verb takes the
/// communicator, buffers, what else it needs, and a completion token last. All ranks of a
/// communicator start them in the same order.
///
/// \code
/// std::vector<double> gradient(1000, 1.0);
/// co_await cohort::all_reduce(world, gradient, cohort::op::sum);               // now
/// auto later = cohort::broadcast(world, gradient, /*root*/ 0, cohort::as_future);
/// // ... compute: the broadcast has started ...
/// co_await std::move(later);
/// auto [error] = co_await cohort::barrier(world, cohort::as_tuple);            // does not throw
/// gradient = co_await cohort::all_reduce(world, std::move(gradient), cohort::op::max);  // owned
/// \endcode

#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/all_to_all.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/collectives/gather.hpp>
#include <cohort/collectives/neighbor.hpp>
#include <cohort/collectives/persistent.hpp>
#include <cohort/collectives/reduce.hpp>
#include <cohort/collectives/reduce_scatter.hpp>
#include <cohort/collectives/scan.hpp>
#include <cohort/collectives/scatter.hpp>
#include <cohort/collectives/serialized.hpp>

// What carries collectives within a node, unless a communicator says otherwise.
#include <cohort/shm.hpp>
