// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: the root is missing: an integer after the reduction
#include <cohort/collectives/reduce.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> data(3);
  co_await cohort::reduce(world, data, cohort::op::sum);
}
