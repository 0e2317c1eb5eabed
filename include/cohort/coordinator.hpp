// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer coordinator: collectives that have names. Each rank submits them in any order; what
/// all ranks have submitted runs, small ones together in one call, and who is missing is named.
///
/// \code
/// cohort::coordinator coord(world);
/// std::vector<float> w(1000, 1.0F), b(20, 2.0F);
/// auto first = coord.all_reduce("layer1/w", w, cohort::op::average, cohort::as_future);
/// auto second = coord.all_reduce("layer1/b", b, cohort::op::average, cohort::as_future);
/// co_await std::move(second);  // another rank may have begun with "layer1/b"
/// co_await std::move(first);
/// co_await coord.shutdown();
/// \endcode

#include <cohort/coordinator/bundle.hpp>
#include <cohort/coordinator/coordinator.hpp>
#include <cohort/coordinator/options_text.hpp>
#include <cohort/coordinator/persistent_group.hpp>
#include <cohort/coordinator/process_set.hpp>

// What carries collectives within a node, unless a communicator says otherwise.
#include <cohort/shm.hpp>
