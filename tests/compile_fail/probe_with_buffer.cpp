// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: after the communicator come a source
#include <cohort/p2p/probe.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> data(2);
  co_await cohort::probe(world, data, 1, 7);
}
