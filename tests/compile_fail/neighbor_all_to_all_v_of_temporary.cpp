// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: the first argument is no buffer: pass a contiguous range or scalar lvalue
#include <cohort/collectives/neighbor.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<int> out(2), counts(2);
  co_await cohort::neighbor_all_to_all_v(world, 5, counts, out, counts);
}
