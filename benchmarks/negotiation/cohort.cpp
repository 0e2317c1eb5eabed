// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/progress/future.hpp>

#include <optional>
#include <string>
#include <utility>

namespace with_cohort {

asio::awaitable<double> direct(cohort::communicator world, double& value, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    co_await cohort::all_reduce(world, value, cohort::op::max);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> named(cohort::process_set in, double& value, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    co_await in.all_reduce("value", value, cohort::op::max);
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

asio::awaitable<double> beside_waiting(cohort::process_set in, cohort::process_set waiting,
                                       double& value, int rounds) {
  double held = 1;
  const bool is_last = waiting.rank() == waiting.size() - 1;
  std::optional<cohort::future<void>> end;
  if (!is_last) end = waiting.all_reduce("held", held, cohort::op::max, cohort::as_future);
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    co_await in.all_reduce("value", value, cohort::op::max);
  }
  const double time = bench::nanoseconds_since(start) / rounds;
  if (is_last) end = waiting.all_reduce("held", held, cohort::op::max, cohort::as_future);
  co_await std::move(*end);
  co_return time;
}

}  // namespace with_cohort
