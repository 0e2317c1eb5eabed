// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: a buffer that receives must be writable
#include <cohort/collectives/broadcast.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  const std::vector<double> data(3);
  co_await cohort::broadcast(world, data, 0);
}
