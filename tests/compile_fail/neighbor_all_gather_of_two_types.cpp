// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: both buffers need one element type
#include <cohort/collectives/neighbor.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> in(2);
  std::vector<float> out(8);
  co_await cohort::neighbor_all_gather(world, in, out);
}
