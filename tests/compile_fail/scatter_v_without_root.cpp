// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: the root is missing
#include <cohort/collectives/scatter.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> in(2), out(8);
  std::vector<int> counts(4);
  co_await cohort::scatter_v(world, in, out, counts);
}
