// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What is said of receives that wait: the warning about those that stall, and reports.
#include <cohort/comm/operation.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/rendezvous.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/exchange_support.hpp"

namespace {

using namespace rendezvous_test;

/// The line of a report about a receive on this rank, up to its age.
std::string line_about(const cohort::communicator& world, const rendezvous_key& key,
                       cohort::step_id step) {
  return "rank " + std::to_string(world.rank()) + ": rendezvous recv '" + to_string(key) +
         "' of step " + std::to_string(step) + " from rank " + std::to_string(key.source) +
         ", pending for ";
}

/// Runs `body(world, exchange, lines)` where what has been pending for 50 ms is named.
template <class Body>
void with_warnings(Body body) {
  ::setenv("COHORT_STALL_WARNING", "50ms", 1);
  const cohort::log::capture lines;
  with_rendezvous([&](cohort::communicator world, cohort::rendezvous exchange) -> task {
    ::unsetenv("COHORT_STALL_WARNING");
    co_await body(world, exchange, lines);
  });
}

/// Nothing but perhaps the opening has been named, for which a rank may have come late.
void check_silence(const cohort::log::capture& lines) {
  INFO(lines.text());
  for (const char* verb : {"rendezvous recv", "rendezvous close", "rendezvous_"}) {
    CHECK_FALSE(lines.contains(verb));
  }
}

/// Until what is pending from now on has been named, and some time more.
task until_warned(cohort::communicator world, const cohort::log::capture& lines) {
  int never = 0;
  auto pending = cohort::recv(world, never, cohort::any_source, 13, as_future);
  while (!lines.contains(": recv #")) co_await pause(1ms);
  co_await pause(200ms);
  pending.cancel();
  const auto code = co_await cohort_test::code_of(std::move(pending));
  CHECK(code == asio::error::operation_aborted);
}

}  // namespace

TEST_CASE("the time of a stall counts from when somebody waits", "[rendezvous][reports]") {
  with_warnings([](cohort::communicator world, cohort::rendezvous exchange,
                   const cohort::log::capture& lines) -> task {
    if (world.size() == 1) co_return;
    using clock = std::chrono::steady_clock;
    auto step = exchange.step(1);
    // The receive of the rendezvous is posted, and nobody waits for it, for as long as this.
    co_await until_warned(world, lines);
    check_silence(lines);
    const auto begin = clock::now();
    auto got = step.recv<int>(from_left(world, "late"), as_future);
    const std::string about = line_about(world, from_left(world, "late"), 1);
    while (!lines.contains(about)) co_await pause(1ms);
    const auto waited = std::chrono::ceil<std::chrono::milliseconds>(clock::now() - begin);
    const std::string text = lines.text();
    INFO(text);
    CHECK(std::stol(text.substr(text.find(about) + about.size())) <= waited.count());
    co_await pause(200ms);
    CHECK(lines.text().find(about, text.find(about) + 1) == std::string::npos);  // once
    co_await meet(world);
    step.send(to_right(world, "late"), world.rank());
    const auto value = co_await std::move(got);
    CHECK(value.value == left_of(world));
  });
}

TEST_CASE("a receive that stalls is named whatever else comes", "[rendezvous][reports]") {
  with_warnings([](cohort::communicator world, cohort::rendezvous exchange,
                   const cohort::log::capture& lines) -> task {
    auto step = exchange.step(7);
    const int me = world.rank();
    if (me == 0 && world.size() > 2) {
      auto waits = step.recv<int>(key_of(2, 0, "from the silent one"), as_future);
      const std::string about = line_about(world, key_of(2, 0, "from the silent one"), 7);
      bool goes_on = true;
      while (goes_on) {
        goes_on = !lines.contains(about);
        step.send(key_of(0, 1, "go on"), goes_on ? 1 : 0);
        co_await step.recv<int>(key_of(1, 0, "from the other one"));
      }
      co_await meet(world);
      co_await std::move(waits);
    } else if (me == 1 && world.size() > 2) {
      for (bool goes_on = true; goes_on;) {
        const auto told = co_await step.recv<int>(key_of(0, 1, "go on"));
        goes_on = told.value == 1;
        co_await pause(5ms);
        step.send(key_of(1, 0, "from the other one"), 1);
      }
      co_await meet(world);
    } else {
      co_await meet(world);
      if (me == 2) step.send(key_of(2, 0, "from the silent one"), 1);
    }
  });
}

TEST_CASE("what waits for this rank itself is named, and an awaited close",
          "[rendezvous][reports]") {
  with_warnings([](cohort::communicator world, cohort::rendezvous exchange,
                   const cohort::log::capture& lines) -> task {
    auto step = exchange.step(1);
    auto waits = step.recv<int>(own(world, "mine"), as_future);
    while (!lines.contains(line_about(world, own(world, "mine"), 1))) co_await pause(1ms);
    step.send(own(world, "mine"), 1);
    co_await std::move(waits);
    step.send(own(world, "held"), 1);
    auto drained = step.drained(as_future);
    while (!lines.contains("rendezvous drained of step 1, pending for ")) co_await pause(1ms);
    co_await step.recv<int>(own(world, "held"));
    co_await std::move(drained);
    co_await meet(world);
    if (world.rank() == 0) {
      co_await meet(world);
      co_return;
    }
    auto closing = exchange.close(as_future);
    while (!lines.contains("rendezvous close, pending for ")) co_await pause(1ms);
    co_await meet(world);
    co_await std::move(closing);
  });
}

TEST_CASE("a rank that has left in the background does not stall", "[rendezvous][reports]") {
  ::setenv("COHORT_STALL_WARNING", "50ms", 1);
  const cohort::log::capture lines;
  cohort_test::on_world([&](cohort::communicator world) -> task {
    std::optional<cohort::rendezvous> exchange(world);
    ::unsetenv("COHORT_STALL_WARNING");
    while (exchange->incarnation(left_of(world)) == 0) co_await pause(1ms);  // it opens
    co_await meet(world);
    if (world.rank() != 0) exchange.reset();
    co_await until_warned(world, lines);
    co_await meet(world);
    exchange.reset();
  });
  check_silence(lines);
}

TEST_CASE("a value whose receiver computes does not stall its sender", "[rendezvous][reports]") {
  with_warnings([](cohort::communicator world, cohort::rendezvous exchange,
                   const cohort::log::capture& lines) -> task {
    if (world.size() == 1) co_return;
    const rendezvous_key key = key_of(0, 1, "large");
    const std::vector<int> value(1000000, 1);
    co_await meet(world);
    if (world.rank() == 0) {
      while (exchange.steps().empty()) co_await pause(1ms);  // until it is asked for
      exchange.step(1).send(key, value);
      cohort::poll(world);                 // the offer leaves;
      std::this_thread::sleep_for(300ms);  // what grants it comes meanwhile
      co_await until_warned(world, lines);
      check_silence(lines);
    } else if (world.rank() == 1) {
      auto got = exchange.step(1).recv<std::vector<int>>(key, as_future);
      co_await pause(150ms);
      std::this_thread::sleep_for(900ms);
      const auto result = co_await std::move(got);
      CHECK(result.value == value);
    }
    co_await meet(world);
  });
}

TEST_CASE("a cancelled receive does not stall", "[rendezvous][reports]") {
  with_warnings([](cohort::communicator world, cohort::rendezvous exchange,
                   const cohort::log::capture& lines) -> task {
    if (world.size() == 1) co_return;
    auto step = exchange.step(1);
    co_await meet(world);
    if (world.rank() == 0) {
      co_await pause(20ms);                // all have met
      std::this_thread::sleep_for(900ms);  // no withdrawal is answered
    } else if (world.rank() == 1) {
      co_await pause(100ms);
      auto gone = step.recv<int>(from_left(world, "never"), as_future);
      gone.cancel();
      const auto code = co_await cohort_test::code_of<cohort::received<int>>(std::move(gone));
      CHECK(code == asio::error::operation_aborted);
      co_await until_warned(world, lines);
      check_silence(lines);
    }
    co_await meet(world);
  });
}

TEST_CASE("reports list the receives that wait, not too many", "[rendezvous][reports]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    using Catch::Matchers::ContainsSubstring;
    const auto report = [] { return cohort::process::describe_in_flight(); };
    auto step = exchange.step(3);
    auto left = step.recv<int>(from_left(world, "left"), as_future);
    auto mine = step.recv<int>(own(world, "mine"), as_future);
    auto gone = step.recv<int>(own(world, "gone"), as_future);
    gone.cancel();
    const auto code = co_await cohort_test::code_of<cohort::received<int>>(std::move(gone));
    CHECK(code == asio::error::operation_aborted);
    std::string text = report();
    const auto line = [&](const rendezvous_key& key) {
      return "  rank " + std::to_string(world.rank()) + ": rendezvous recv '" + to_string(key) +
             "' of step 3 from rank " + std::to_string(key.source) + ", ";
    };
    CHECK_THAT(text, ContainsSubstring(line(from_left(world, "left"))));
    CHECK_THAT(text, ContainsSubstring(line(own(world, "mine"))));
    CHECK_THAT(text, !ContainsSubstring("gone"));
    CHECK(text.back() == '\n');
    std::vector<cohort::future<cohort::received<int>>> many;
    for (int i = 0; i < 23; ++i) many.push_back(step.recv<int>(own(world, "many"), as_future));
    text = report();
    CHECK_THAT(text, ContainsSubstring("\n  and 5 more\n"));
    co_await meet(world);
    step.send(to_right(world, "left"), 1);
    step.send(own(world, "mine"), 1);
    for (int i = 0; i < 23; ++i) step.send(own(world, "many"), 1);
    co_await std::move(left);
    co_await std::move(mine);
    for (auto& one : many) co_await std::move(one);
    text = report();
    CHECK_THAT(text, !ContainsSubstring("rendezvous recv"));
  });
}
