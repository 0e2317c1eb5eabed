// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: average of floating point only
#include <cohort/collectives/reduce_scatter.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<int> in(4), out(2), counts(2);
  co_await cohort::reduce_scatter_v(world, in, out, counts, cohort::op::average);
}
