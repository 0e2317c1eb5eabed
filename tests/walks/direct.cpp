// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file A direct all_reduce.

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/comm/run.hpp>

#include <vector>

#include "program.hpp"

asio::awaitable<void> direct(cohort::communicator world) {
  std::vector<double> gradient(1000, world.rank());
  co_await cohort::all_reduce(world, gradient, cohort::op::average);
  for (int i = 0; i <= walk::repetitions; ++i) {
    co_await walk::rank_0_first(world, i);
    co_await cohort::all_reduce(world, gradient, cohort::op::average);
    walk::end();
  }
  walk::write(world.rank());
}

int main(int argc, char** argv) { return cohort::run(argc, argv, direct); }
