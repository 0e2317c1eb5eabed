// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Runs a coroutine with a communicator of all ranks.

#include <cohort/comm/operation.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/p2p/wait.hpp>
#include <cohort/progress/engine.hpp>

#include <chrono>
#include <utility>

#include "support/run.hpp"

namespace cohort_test {

/// Makes a context and a communicator, runs `body(world)` to its end, and takes all down again.
/// `body` stays where it is until then, so it may be a lambda that captures.
template <class Body>
auto on_world(Body&& body, const cohort::communicator_options& options = {}) {
  asio::io_context io;
  cohort::communicator world(io, options);
  return run(io, body(world));
}

/// The same where a test looks at, or fails, calls of MPI.
template <class Body>
auto on_world_of_mpi(Body&& body) {
  cohort::communicator_options options;
  options.backend = cohort::backend_choice::mpi;
  return on_world(std::forward<Body>(body), options);
}

/// Completes when all ranks have come here, while the loop goes on. Ranks are milliseconds apart:
/// whoever checks that something has not happened must keep the others from doing it.
inline asio::awaitable<void> meet(cohort::communicator world) {
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const cohort::mpi::lock calls;
    MPI_Ibarrier(world.native(), &request);
  }
  co_await cohort::wait(world, request);
}

/// Lets the loop run for a while.
inline asio::awaitable<void> pause(std::chrono::nanoseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}

/// Until the engine has made no lap for so long: never, if it does not sleep.
inline asio::awaitable<void> until_it_sleeps(
    asio::io_context& loop, std::chrono::nanoseconds time = std::chrono::milliseconds(200)) {
  for (auto before = cohort::engine_stats(loop);;) {
    co_await pause(time);
    const auto after = cohort::engine_stats(loop);
    if (after.laps == before.laps && after.parked > 0) co_return;
    before = after;
  }
}

/// The ranks beside this one in a ring.
inline int right_of(const cohort::communicator& world) { return (world.rank() + 1) % world.size(); }
inline int left_of(const cohort::communicator& world) {
  return (world.rank() + world.size() - 1) % world.size();
}

}  // namespace cohort_test
