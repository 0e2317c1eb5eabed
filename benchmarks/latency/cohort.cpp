// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/persistent.hpp>
#include <cohort/comm.hpp>
#include <cohort/p2p/batch.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>
#include <cohort/shm.hpp>

#include <span>

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

std::span<double> part(buffer values, std::size_t k) {
  const std::size_t count = values.size() / 12;
  return {values.data() + k * count, count};
}

cohort::batch batch_of(const cohort::communicator& world, buffer values, bool persistent) {
  const int other = 1 - world.rank();
  cohort::batch messages(world);
  for (int k = 0; k < 6; ++k) messages.recv(part(values, k), other, k);
  for (int k = 0; k < 6; ++k) messages.send(part(values, 6 + k), other, k);
  if (persistent) messages.persistent();
  return messages;
}

asio::awaitable<double> await_batch(cohort::communicator world, buffer values, int rounds,
                                    bool persistent) {
  cohort::batch messages = batch_of(world, values, persistent);
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) co_await messages.run();
  co_return bench::nanoseconds_since(start) / rounds;
}

double block_on_batch(const cohort::communicator& world, buffer values, int rounds,
                      bool persistent) {
  cohort::batch messages = batch_of(world, values, persistent);
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) messages.run(cohort::blocking);
  return bench::nanoseconds_since(start) / rounds;
}

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

double persistent_all_reduce(const cohort::communicator& world, buffer values, int rounds) {
  auto most = cohort::all_reduce_init(world, values, cohort::op::max);
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) most.run(cohort::blocking);
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

asio::awaitable<double> await_halo(cohort::communicator world, buffer values, int rounds) {
  return await_batch(world, values, rounds, false);
}
asio::awaitable<double> await_persistent_halo(cohort::communicator world, buffer values,
                                              int rounds) {
  return await_batch(world, values, rounds, true);
}
double blocking_halo(const cohort::communicator& world, buffer values, int rounds) {
  return block_on_batch(world, values, rounds, false);
}
double blocking_persistent_halo(const cohort::communicator& world, buffer values, int rounds) {
  return block_on_batch(world, values, rounds, true);
}

asio::awaitable<double> future_halo(cohort::communicator world, buffer values, int rounds) {
  const int other = 1 - world.rank();
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    std::vector<cohort::future<>> all;
    for (int k = 0; k < 6; ++k) {
      all.push_back(cohort::recv(world, part(values, k), other, k, cohort::as_future));
    }
    for (int k = 0; k < 6; ++k) {
      all.push_back(cohort::send(world, part(values, 6 + k), other, k, cohort::as_future));
    }
    co_await cohort::when_all(std::move(all));
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

}  // namespace with_cohort
