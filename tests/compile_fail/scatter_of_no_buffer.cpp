// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: the first argument is no buffer: pass a contiguous range or scalar lvalue
#include <cohort/collectives/scatter.hpp>
#include <map>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::map<int, double> in;
  std::vector<double> out(8);
  co_await cohort::scatter(world, in, out, 0);
}
