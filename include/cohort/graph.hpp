// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer graph: tasks that any rank may spawn, in any order, and that run once.
///
/// \code
/// #include <cohort/cohort.hpp>
///
/// #include <cstdio>
///
/// double next(double before) { return before / 2 + 1; }
///
/// asio::awaitable<void> chain(cohort::graph::scope& scope, int length) {
///   auto step = scope.tasks<&next>("step");  // placed by a hash of the index
///   step(0).spawn(1.0);
///   for (int i = 1; i < length; ++i) step(i).spawn(step(i - 1));
///   std::printf("%g\n", co_await step(length - 1).get());
/// }
///
/// asio::awaitable<void> work(cohort::communicator world) {
///   cohort::graph::tasks all(world);
///   co_await all.run("chain", &chain, 10);
/// }
///
/// int main(int argc, char** argv) { return cohort::run(argc, argv, work); }
/// \endcode

#include <cohort/graph/error.hpp>
#include <cohort/graph/placement.hpp>
#include <cohort/graph/scope.hpp>
#include <cohort/graph/scope_options.hpp>
#include <cohort/graph/task.hpp>
#include <cohort/graph/task_context.hpp>
#include <cohort/graph/tasks.hpp>

// What carries messages within a node, unless a communicator says otherwise.
#include <cohort/shm.hpp>
