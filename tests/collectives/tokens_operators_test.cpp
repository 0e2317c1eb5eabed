// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Every verb under awaitable_operators: && and ||.

#include <asio/experimental/awaitable_operators.hpp>

#include <chrono>

#include "collectives/token_matrix.hpp"

namespace {

using namespace collectives_test;
using namespace asio::experimental::awaitable_operators;
using task = asio::awaitable<void>;

// Not void: && of several results and none does not compile in Asio 1.22.
asio::awaitable<bool> timer(asio::steady_timer& clock) {
  co_await clock.async_wait(asio::use_awaitable);
  co_return true;
}

template <class Verb>
task both(bench& b, Verb verb) {
  asio::steady_timer soon(b.io, std::chrono::milliseconds(1));
  co_await (verb(b, asio::use_awaitable) && timer(soon));
}

template <class Verb>
task first(bench& b, Verb verb, std::size_t& winner) {
  asio::steady_timer never(b.io, std::chrono::minutes(10));
  const auto result = co_await (verb(b, asio::use_awaitable) || timer(never));
  winner = result.index();
}

}  // namespace

TEST_CASE("every verb && a timer") {
  with_every_verb([](bench& b, auto verb) { return runs(b, both(b, verb)); });
}

TEST_CASE("every verb || a timer that is later") {
  with_every_verb([](bench& b, auto verb) {
    std::size_t winner = 1;
    return runs(b, first(b, verb, winner)) && winner == 0;
  });
}
