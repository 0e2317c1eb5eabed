// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file A named all_reduce by the coordinator, on the root.

#include <cohort/comm/run.hpp>
#include <cohort/coordinator.hpp>

#include <cstdlib>
#include <vector>

#include "program.hpp"

asio::awaitable<void> named(cohort::communicator world) {
  cohort::coordinator coord(world);
  std::vector<double> gradient(1000, world.rank());
  co_await coord.all_reduce("gradient", gradient, cohort::op::average);
  for (int i = 0; i <= walk::repetitions; ++i) {
    co_await walk::rank_0_first(world, i);
    co_await coord.all_reduce("gradient", gradient, cohort::op::average);
    walk::end();
  }
  walk::write(world.rank());
}

int main(int argc, char** argv) {
  ::setenv("COHORT_BACKEND", "mpi", 1);  // the longer way
  return cohort::run(argc, argv, named);
}
