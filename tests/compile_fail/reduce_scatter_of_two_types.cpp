// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: both buffers need one element type
#include <cohort/collectives/reduce_scatter.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> in(4);
  std::vector<float> out(2);
  co_await cohort::reduce_scatter(world, in, out, cohort::op::sum);
}
