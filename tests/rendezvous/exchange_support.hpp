// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of whole rendezvous share.

#include <cohort/rendezvous.hpp>

#include <chrono>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "rendezvous/keys.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace rendezvous_test {

using namespace std::chrono_literals;
using cohort::as_future;
using cohort::errc;
using cohort_test::left_of;
using cohort_test::meet;
using task = asio::awaitable<void>;

/// From this rank to itself.
inline rendezvous_key own(const cohort::communicator& world, std::string_view name) {
  return key_of(world.rank(), world.rank(), name);
}

inline rendezvous_key to_right(const cohort::communicator& world, std::string_view name,
                               std::uint64_t iteration = 0) {
  return key_of(world.rank(), cohort_test::right_of(world), name, iteration);
}
inline rendezvous_key from_left(const cohort::communicator& world, std::string_view name,
                                std::uint64_t iteration = 0) {
  return key_of(cohort_test::left_of(world), world.rank(), name, iteration);
}

/// Runs `body(world, exchange)` and closes the rendezvous.
template <class Body>
void with_rendezvous(Body body, const cohort::rendezvous_options& options = {}) {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    cohort::rendezvous exchange(world, options);
    co_await body(world, exchange);
    co_await exchange.close();
  });
}

/// So many values have gone each way from this rank to another one; to itself none goes any way.
inline void check_ways(const cohort::communicator& world, const cohort::rendezvous& exchange,
                       std::uint64_t pushed, std::uint64_t pulled, std::uint64_t granted) {
  const cohort::rendezvous_statistics sent = exchange.stats();
  const bool goes = world.size() > 1;
  CHECK(sent.pushed == (goes ? pushed : 0));
  CHECK(sent.pulled == (goes ? pulled : 0));
  CHECK(sent.granted == (goes ? granted : 0));
}

/// Lets the loop run for a while.
inline task pause(std::chrono::nanoseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}

template <class Call>
std::error_code code_of_call(Call call) {
  try {
    call();
  } catch (const std::system_error& problem) {
    return problem.code();
  }
  return {};
}

}  // namespace rendezvous_test
