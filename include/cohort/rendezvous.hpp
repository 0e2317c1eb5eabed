// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer rendezvous: values sent and received by key, step by step, between any two ranks. Who
/// comes first, the sender or the receiver, makes no difference.
///
/// \code
/// cohort::rendezvous exchange(world);
/// auto step = exchange.step(42);
/// const int last = world.size() - 1;
/// cohort::rendezvous_key key{.source = 0, .destination = last, .name = "activations"};
/// if (world.rank() == 0) step.send(key, std::vector<float>(1000, 1.F));
/// if (world.rank() == last) {
///   auto [value, dead] = co_await step.recv<std::vector<float>>(key);
/// }
/// co_await step.drained();  // all that this rank has sent in this step has been received
/// exchange.cleanup(42);     // the step is over here
/// co_await exchange.close();
/// \endcode

#include <cohort/rendezvous/rendezvous.hpp>
#include <cohort/rendezvous/table.hpp>
#include <cohort/rendezvous/vocabulary.hpp>

// What carries messages within a node, unless a communicator says otherwise.
#include <cohort/shm.hpp>
