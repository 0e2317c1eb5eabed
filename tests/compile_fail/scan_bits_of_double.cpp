// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: no bitwise operation on floating point
#include <cohort/collectives/scan.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> data(3);
  co_await cohort::scan(world, data, cohort::op::bit_or);
}
