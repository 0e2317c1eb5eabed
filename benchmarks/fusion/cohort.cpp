// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/countdown.hpp"
#include "support/statistics.hpp"

#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>

#include <utility>

namespace with_cohort {

asio::awaitable<double> callbacks(cohort::coordinator coord, tensor_set& tensors, const names& by) {
  const auto start = bench::clock::now();
  const auto run = [&](auto done) {
    auto* all = new bench::countdown<decltype(done)>{tensors.size(), std::move(done)};
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      coord.all_reduce(by[i], tensors[i], cohort::op::sum,
                       [all](const std::exception_ptr& error) { (*all)(error); });
    }
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(run, asio::use_awaitable);
  co_return bench::nanoseconds_since(start);
}

asio::awaitable<double> futures(cohort::coordinator coord, tensor_set& tensors, const names& by) {
  const auto start = bench::clock::now();
  std::vector<cohort::future<void>> all;
  all.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    all.push_back(coord.all_reduce(by[i], tensors[i], cohort::op::sum, cohort::as_future));
  }
  co_await cohort::when_all(std::move(all));
  co_return bench::nanoseconds_since(start);
}

asio::awaitable<double> average(cohort::coordinator coord, std::vector<float>& tensor,
                                std::string name, cohort::compression how) {
  const auto start = bench::clock::now();
  cohort::call_options options;
  options.compression = how;
  co_await coord.all_reduce(name, tensor, cohort::op::average, options);
  co_return bench::nanoseconds_since(start);
}

struct instant_backend::state {
  asio::io_context::executor_type executor;
  std::vector<cohort::comm::backend_completion> started;
  std::vector<cohort::comm::backend_completion> ending;
  bool posted = false;
};

instant_backend::instant_backend(asio::io_context::executor_type executor)
    : state_(std::make_shared<state>(state{executor, {}, {}})) {}

void instant_backend::start(const cohort::comm::collective_call&,
                            cohort::comm::backend_completion done) {
  state_->started.push_back(done);
  if (std::exchange(state_->posted, true)) return;
  asio::post(state_->executor, [all = state_] {
    all->posted = false;
    std::swap(all->started, all->ending);
    for (const auto& each : all->ending) each({});
    all->ending.clear();
  });
}

}  // namespace with_cohort
