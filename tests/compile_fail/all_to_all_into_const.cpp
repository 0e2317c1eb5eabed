// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: a buffer that receives must be writable
#include <cohort/collectives/all_to_all.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> in(2);
  const std::vector<double> out(2);
  co_await cohort::all_to_all(world, in, out);
}
