// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: a buffer that receives must be writable
#include <cohort/collectives/gather.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> in(2);
  const std::vector<double> out(8);
  std::vector<int> counts(4);
  co_await cohort::gather_v(world, in, out, counts, 0);
}
