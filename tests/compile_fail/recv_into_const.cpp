// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: a receive needs a buffer that can be written
#include <cohort/p2p/recv.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  const std::vector<double> data(2);
  co_await cohort::recv(world, data, 1, 7);
}
