// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: the result needs a writable buffer
#include <cohort/collectives/all_reduce.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  const std::vector<double> data(3);
  co_await cohort::all_reduce(world, data, cohort::op::sum);
}
