// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/progress/future.hpp>

#include <string>

namespace with_cohort {

asio::awaitable<double> direct(cohort::communicator world, double& value, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    co_await cohort::all_reduce(world, value, cohort::op::max);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> named(cohort::coordinator coord, double& value, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    co_await coord.all_reduce("value", value, cohort::op::max);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> named_future(cohort::coordinator coord, double& value, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    auto reduced = coord.all_reduce("value", value, cohort::op::max, cohort::as_future);
    co_await std::move(reduced);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> persistent(cohort::persistent_group group, double&, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) co_await group.start();
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> unnamed(cohort::coordinator coord, double& value, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) co_await coord.all_reduce(value, cohort::op::max);
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> new_names(cohort::coordinator coord, double& value, int rounds) {
  static int last = 0;
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    const std::string name = "value " + std::to_string(++last);
    co_await coord.all_reduce(name, value, cohort::op::max);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

}  // namespace with_cohort
