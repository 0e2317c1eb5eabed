// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer shm: collectives of the ranks of one node through memory that they share, in place of
/// MPI's. The calls stay as they are:
///
/// \code
/// auto node = co_await world.split_node();
/// node.set_backend(co_await cohort::shm::make_backend(node));
/// std::vector<float> x(1000, 1.0F);
/// co_await cohort::all_reduce(node, x, cohort::op::sum);  // no message carries data
/// \endcode

#include <cohort/shm/backend.hpp>
#include <cohort/shm/memory.hpp>
