// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: after the buffer come a rank and a tag
#include <cohort/p2p/send.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> data(2);
  co_await cohort::send(world, data, 1);
}
