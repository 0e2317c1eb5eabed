// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: the reduction must be defined for it (no sum of bool
#include <cohort/collectives/all_reduce.hpp>

asio::awaitable<void> wrong(cohort::communicator world) {
  bool flag = true;
  co_await cohort::all_reduce(world, flag, cohort::op::sum);
}
