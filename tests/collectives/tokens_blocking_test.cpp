// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Every verb from code that is no coroutine; and ranks that call the same verbs each in its own
// way.

#include <cohort/progress/blocking.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/sync_wait.hpp>

#include <random>
#include <system_error>
#include <tuple>
#include <utility>

#include "collectives/token_matrix.hpp"

namespace tokens_blocking_test {

using namespace collectives_test;
using task = asio::awaitable<void>;

template <class Verb>
task awaited(bench& b, Verb verb) {
  co_await verb(b, asio::use_awaitable);
}

constexpr int styles = 6;

/// Whether it completed without an error.
template <class Verb>
bool in_style(int style, bench& b, Verb verb) {
  switch (style) {
    case 0:
      return runs(b, awaited(b, verb));
    case 1:
      static_cast<void>(verb(b, cohort::blocking));
      return true;
    case 2:
      cohort::sync_wait(b.io, awaited(b, verb));
      return true;
    case 3:
      static_cast<void>(cohort::sync_wait(b.io, verb(b, cohort::as_future)));
      return true;
    case 4:
      return !std::get<0>(verb(b, cohort::as_tuple(cohort::blocking)));
    default: {
      std::error_code code = cohort::make_error_code(cohort::errc::stalled);
      verb(b, [&](std::error_code error, auto&&...) { code = error; });
      drive(b);
      return !code;
    }
  }
}

}  // namespace tokens_blocking_test

TEST_CASE("every verb can block") {
  using namespace tokens_blocking_test;
  with_every_verb([](bench& b, auto verb) {
    static_cast<void>(verb(b, cohort::blocking));
    return true;
  });
}

TEST_CASE("plain code waits for a coroutine of every verb") {
  using namespace tokens_blocking_test;
  with_every_verb([](bench& b, auto verb) {
    cohort::sync_wait(b.io, awaited(b, verb));
    return true;
  });
}

// More calls than it takes until shared memory is open.
TEST_CASE("each rank calls the verbs in a way of its own") {
  using namespace tokens_blocking_test;
  bench b;
  std::minstd_rand random(static_cast<unsigned>(b.own) * 7919U);
  const std::tuple<verbs::barrier, verbs::broadcast, verbs::all_reduce, verbs::reduce_scatter,
                   verbs::scan, verbs::all_gather_v_counted, verbs::send_recv, verbs::wait>
      all;
  for (int round = 0; round < 40; ++round) {
    const auto check = [&](auto one) {
      const int style = static_cast<int>(random() % styles);
      INFO(decltype(one)::header << " in style " << style << ", round " << round);
      b.clear();
      one.before(b);
      CHECK(in_style(style, b, one));
      one.after(b);
      CHECK(one.right(b));
    };
    std::apply([&](auto... verb) { (check(verb), ...); }, all);
  }
}
