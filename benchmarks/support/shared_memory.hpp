// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A backend that does share memory.

#include <cohort/shm.hpp>

#include <stdexcept>

namespace bench {

/// Refuses where it would be MPI that is measured in its place.
inline asio::awaitable<cohort::shm::backend> make_shared_memory(
    cohort::communicator world, cohort::shm::backend_options options = {}) {
  auto by = co_await cohort::shm::make_backend(world, options);
  if (!by.active()) throw std::runtime_error(by.why());
  co_return by;
}

}  // namespace bench
