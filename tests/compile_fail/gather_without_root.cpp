// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: the root is missing
#include <cohort/collectives/gather.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> in(2), out(8);
  co_await cohort::gather(world, in, out);
}
