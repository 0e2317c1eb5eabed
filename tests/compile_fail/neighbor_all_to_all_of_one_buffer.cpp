// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: this call does not fit
#include <cohort/collectives/neighbor.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> data(2);
  co_await cohort::neighbor_all_to_all(world, data);
}
