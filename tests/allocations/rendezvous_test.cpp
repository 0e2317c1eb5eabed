// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// What a value of a rendezvous allocates between its send and its receive, once its key is known,
// and what a new step with new keys does.

#include <cohort/progress/context.hpp>
#include <cohort/rendezvous.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "support/catch.hpp"
#include "support/world.hpp"

long allocations_so_far();  // allocations_test.cpp

namespace {

constexpr int warm_up = 100;
constexpr int rounds = 100;
constexpr std::string_view long_name = "the name of an edge that no short string holds";

cohort::rendezvous_key key_of(int source, int destination, std::string_view name) {
  cohort::rendezvous_key key;
  key.source = source;
  key.destination = destination;
  key.name = name;
  return key;
}

/// Allocations for each value that this rank receives in the steady state, by callbacks alone:
/// sends to the right and receives from the left, again and again. `step_of(round)`: where.
double measure(const cohort::rendezvous_options& options,
               const std::function<cohort::step_id(int)>& step_of, int values,
               std::string_view name) {
  return cohort_test::on_world([&](cohort::communicator world) -> asio::awaitable<double> {
    cohort::rendezvous exchange(world, options);
    const auto out = key_of(world.rank(), cohort_test::right_of(world), name);
    const auto in = key_of(cohort_test::left_of(world), world.rank(), name);
    // Woken by the last handler, so that the engine and not this coroutine waits for the others.
    asio::steady_timer done(co_await asio::this_coro::executor);
    const auto wait = [&]() { return done.async_wait(cohort::as_tuple(asio::use_awaitable)); };
    long before = 0;
    for (int round = 0; round < warm_up + rounds; ++round) {
      if (round == warm_up) before = allocations_so_far();
      int left = values;
      const cohort::step_id number = step_of(round);
      auto step = exchange.step(number);
      done.expires_after(std::chrono::hours(1));
      for (int i = 0; i < values; ++i) {
        step.recv<double>(in, [&](std::exception_ptr failed, cohort::received<double> got) {
          if (failed) std::rethrow_exception(failed);
          left -= static_cast<int>(*got.value);
          if (left == 0) done.cancel();
        });
        step.send(out, 1.0);
      }
      if (left != 0) co_await wait();
      if (step_of(round + 1) == number) continue;
      bool drained = false;
      done.expires_after(std::chrono::hours(1));
      step.drained([&](std::exception_ptr failed) {
        if (failed) std::rethrow_exception(failed);
        drained = true;
        done.cancel();
      });
      if (!drained) co_await wait();
      exchange.cleanup(number);
    }
    const double result =
        static_cast<double>(allocations_so_far() - before) / (static_cast<double>(rounds) * values);
    co_await exchange.close();
    co_return result;
  });
}

}  // namespace

TEST_CASE("a value of a known key allocates nothing in the steady state") {
  const int values = GENERATE(1, 16, 100);
  for (const std::size_t push : {std::size_t{4096}, std::size_t{0}}) {
    for (const std::string_view name : {std::string_view("edge"), long_name}) {
      const double each = measure(
          cohort::rendezvous_options().push_limit(push), [](int) { return 1; }, values, name);
      CAPTURE(values, push, name, each);
      CHECK(each < 0.5);  // a message larger than any before may need more room
    }
  }
}

TEST_CASE("a new step with a new key allocates little") {
  const double short_named = measure({}, [](int round) { return round; }, 1, "edge");
  const double long_named = measure({}, [](int round) { return round; }, 1, long_name);
  CAPTURE(short_named, long_named);
  CHECK(short_named < 8);  // of which the error that ends the step takes most
  CHECK(long_named < 8);
}
