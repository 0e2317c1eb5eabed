// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: stateless
#include <cohort/collectives/all_reduce.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world, double weight) {
  std::vector<double> data(3);
  const auto blend = [weight](double a, double b) { return a + weight * b; };
  co_await cohort::all_reduce(world, data, cohort::user_op{blend, cohort::commutative});
}
