// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: after the buffers come counts for the _v forms
#include <cohort/collectives/all_to_all.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> in(2), out(2);
  co_await cohort::all_to_all_v(world, in, out);
}
