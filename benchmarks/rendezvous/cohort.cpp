// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/barrier.hpp>

#include <functional>

namespace with_cohort {
namespace {

cohort::rendezvous_key key_of(int source, int destination, std::string_view name) {
  cohort::rendezvous_key key;
  key.source = source;
  key.destination = destination;
  key.name = name;
  return key;
}

/// Matches once more when the last match has been called.
struct chain {
  cohort::rendezvous_step step;
  cohort::rendezvous_key key;
  int left;
  std::function<void()> done;
  void next(double value) {
    if (left-- == 0) return done();
    step.recv<double>(
        key, [this](std::exception_ptr, cohort::received<double> got) { next(*got.value); });
    step.send(key, value);
  }
};

}  // namespace

asio::awaitable<double> round_trip(cohort::rendezvous_step step, int rank, int rounds) {
  const auto out = key_of(rank, 1 - rank, rank == 0 ? "ping" : "pong");
  const auto in = key_of(1 - rank, rank, rank == 0 ? "pong" : "ping");
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    if (rank == 0) step.send(out, 1.0);
    co_await step.recv<double>(in);
    if (rank == 1) step.send(out, 1.0);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> round_trip_in_place(cohort::rendezvous_step step, int rank,
                                            std::shared_ptr<const std::vector<double>> value,
                                            std::vector<double>& into, int rounds) {
  const auto out = key_of(rank, 1 - rank, rank == 0 ? "ping" : "pong");
  const auto in = key_of(1 - rank, rank, rank == 0 ? "pong" : "ping");
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    if (rank == 0) step.send(out, value);
    co_await step.recv_into(in, std::span<double>(into));
    if (rank == 1) step.send(out, value);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> round_trip_of_vectors(cohort::rendezvous_step step, int rank,
                                              std::vector<double>& buffer, int rounds) {
  const auto out = key_of(rank, 1 - rank, rank == 0 ? "ping" : "pong");
  const auto in = key_of(1 - rank, rank, rank == 0 ? "pong" : "ping");
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    if (rank == 0) step.send(out, std::move(buffer));
    auto got = co_await step.recv<std::vector<double>>(in);
    buffer = std::move(*got.value);
    if (rank == 1) {
      step.send(out, std::move(buffer));
      buffer = std::vector<double>();
    }
  }
  const double time = bench::nanoseconds_since(start) / rounds;
  co_return time;
}

asio::awaitable<double> arrived(cohort::communicator world, cohort::rendezvous_step step,
                                int rounds) {
  const int rank = world.rank();
  const auto out = key_of(rank, 1 - rank, "early");
  const auto in = key_of(1 - rank, rank, "early");
  for (int i = 0; i < rounds; ++i) step.send(out, 1.0);
  for (int i = 0; i < 3; ++i) co_await cohort::barrier(world);
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) co_await step.recv<double>(in);
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> match(cohort::rendezvous_step step, int rank, int rounds) {
  asio::steady_timer finished(co_await asio::this_coro::executor,
                              asio::steady_timer::time_point::max());
  const auto start = bench::clock::now();
  double time = 0;
  chain run{step, key_of(rank, rank, "activations"), rounds, [&] {
              time = bench::nanoseconds_since(start);
              finished.cancel();
            }};
  run.next(1);
  co_await finished.async_wait(cohort::as_tuple(asio::use_awaitable));
  co_return time / rounds;
}

asio::awaitable<double> await_match(cohort::rendezvous_step step, int rank, int rounds) {
  const auto key = key_of(rank, rank, "activations");
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    step.send(key, 1.0);
    co_await step.recv<double>(key);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

}  // namespace with_cohort
