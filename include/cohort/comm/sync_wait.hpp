// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `sync_wait` on the loop of a communicator.
///
/// \code
/// std::vector<float> gradient(1000);  // in a function that is no coroutine
/// cohort::sync_wait(world, cohort::barrier(world));
/// auto sum = cohort::all_reduce(world, gradient, cohort::op::sum, cohort::as_future);
/// cohort::poll(world);  // now and then, while it computes something
/// cohort::sync_wait(world, std::move(sum));
/// \endcode

#include <cohort/comm/communicator_state.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>
#include <cohort/progress/sync_wait.hpp>

#include <utility>

namespace cohort {

namespace comm {

/// Throws what stands in the way.
[[nodiscard]] inline asio::io_context& loop_to_wait_on(const communicator& on) {
  if (!on) throw error(errc::invalid_communicator, "sync_wait");
  const progress::engine& engine = on.state()->engine;
  const errc bad = engine.has_own_thread() ? errc{} : on.state()->source.usable();
  if (bad != errc{}) throw error(bad, "sync_wait");
  return engine.context();
}

}  // namespace comm

/// `sync_wait` on the loop that `on` was made on. *Errors*: also errc::invalid_communicator;
/// errc::finalized, errc::not_initialized and errc::wrong_thread where MPI must not be called here.
template <class T>
T sync_wait(const communicator& on, asio::awaitable<T>&& work) {
  return sync_wait(comm::loop_to_wait_on(on), std::move(work));
}
template <class T>
T sync_wait(const communicator& on, future<T>&& work) {
  return sync_wait(comm::loop_to_wait_on(on), std::move(work));
}

}  // namespace cohort
