// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/countdown.hpp"
#include "support/statistics.hpp"

#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>

namespace with_cohort {

asio::awaitable<double> callbacks(cohort::coordinator coord, model& gradients) {
  const auto start = bench::clock::now();
  const auto run = [&](auto done) {
    auto* all = new bench::countdown<decltype(done)>{gradients.size(), std::move(done)};
    for (gradient& each : gradients) {
      coord.all_reduce(each.name, each.values, cohort::op::sum,
                       [all](const std::exception_ptr& error) { (*all)(error); });
    }
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(run, asio::use_awaitable);
  co_return bench::nanoseconds_since(start);
}

asio::awaitable<double> futures(cohort::coordinator coord, model& gradients) {
  const auto start = bench::clock::now();
  std::vector<cohort::future<void>> all;
  all.reserve(gradients.size());
  for (gradient& each : gradients) {
    all.push_back(coord.all_reduce(each.name, each.values, cohort::op::sum, cohort::as_future));
  }
  co_await cohort::when_all(std::move(all));
  co_return bench::nanoseconds_since(start);
}

}  // namespace with_cohort
