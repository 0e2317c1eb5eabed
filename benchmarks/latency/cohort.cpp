// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/comm.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/shm.hpp>

namespace with_cohort {
namespace {

/// Starts its next operation when the last one has completed, then calls `done_`.
template <class Done>
class chain {
 public:
  chain(cohort::communicator world, buffer values, int rounds, Done done)
      : world_(std::move(world)), values_(&values), left_(rounds), done_(std::move(done)) {}

  void operator()(std::error_code error) {
    if (error) throw std::system_error(error);
    if (left_-- == 0) {
      std::move(done_)();
      return;
    }
    const cohort::communicator world = world_;
    buffer values = *values_;
    cohort::all_reduce(world, values, cohort::op::max, std::move(*this));
  }

 private:
  cohort::communicator world_;
  std::vector<double>* values_;
  int left_;
  Done done_;
};

}  // namespace

asio::awaitable<double> await_all_reduce(cohort::communicator world, buffer values, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    co_await cohort::all_reduce(world, values, cohort::op::max);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> await_adasum(cohort::communicator world, buffer values, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    co_await cohort::all_reduce(world, values, cohort::op::adasum);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> future_all_reduce(cohort::communicator world, buffer values, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    auto reduced = cohort::all_reduce(world, values, cohort::op::max, cohort::as_future);
    co_await std::move(reduced);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> callback_all_reduce(cohort::communicator world, buffer values, int rounds) {
  const auto start = bench::clock::now();
  const auto run = [&](auto done) { chain(world, values, rounds, std::move(done))({}); };
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(run, asio::use_awaitable);
  co_return bench::nanoseconds_since(start) / rounds;
}

double sync_wait_all_reduce(const cohort::communicator& world, buffer values, int rounds) {
  const auto once = [](cohort::communicator on, buffer of) -> asio::awaitable<void> {
    co_await cohort::all_reduce(on, of, cohort::op::max);
  };
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) cohort::sync_wait(world, once(world, values));
  return bench::nanoseconds_since(start) / rounds;
}

double blocking_all_reduce(const cohort::communicator& world, buffer values, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    cohort::all_reduce(world, values, cohort::op::max, cohort::blocking);
  }
  return bench::nanoseconds_since(start) / rounds;
}

double blocking_ping_pong(const cohort::communicator& world, buffer values, int rounds) {
  const int rank = world.rank();
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    if (rank == 0) cohort::send(world, values, 1, 0, cohort::blocking);
    cohort::recv(world, values, 1 - rank, 0, cohort::blocking);
    if (rank == 1) cohort::send(world, values, 0, 0, cohort::blocking);
  }
  return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> ping_pong(cohort::communicator world, buffer values, int rounds) {
  const int rank = world.rank();
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    if (rank == 0) co_await cohort::send(world, values, 1, 0);
    co_await cohort::recv(world, values, 1 - rank, 0);
    if (rank == 1) co_await cohort::send(world, values, 0, 0);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

}  // namespace with_cohort
