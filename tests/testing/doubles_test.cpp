// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// What the library gives to tests of its users: a clock, a poll source and a network.

#include <cohort/progress.hpp>
#include <cohort/testing.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/run.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::testing::manual_clock;
using cohort::testing::manual_kind;
using cohort::testing::manual_source;
using cohort::testing::network;
using cohort_test::code_of;
using cohort_test::run;
using task = asio::awaitable<void>;

/// All messages in order of delivery, each as "from>to:text".
std::vector<std::string> drain(network<std::string>& net) {
  std::vector<std::string> order;
  net.run([&](const auto& what) {
    order.push_back(std::to_string(what.from) + ">" + std::to_string(what.to) + ":" + what.message);
  });
  return order;
}

}  // namespace

TEST_CASE("a manual clock stands still until it is moved, and never goes back") {
  manual_clock clock;
  const auto start = clock.now();
  CHECK(clock.now() == start);
  clock.advance(5ms);
  CHECK(clock.now() - start == 5ms);
  clock.advance(-1h);
  CHECK(clock.now() - start == 5ms);
  clock.advance_to(start + 1s);
  clock.advance_to(start);
  CHECK(clock.now() - start == 1s);
  CHECK(start - 1min > manual_clock::time_point());
}

TEST_CASE("an operation of a manual source ends when the test says so") {
  asio::io_context io;
  manual_source source(io);
  std::vector<int> order;
  run(io, [](manual_source& from, std::vector<int>& log) -> task {
    auto first = from.start(1, cohort::as_future);
    auto second = from.start(2, cohort::as_future);
    CHECK(from.pending() == 2);
    CHECK(from.complete(2));
    CHECK_FALSE(from.complete(2));  // once each
    CHECK_FALSE(from.complete(7));
    co_await std::move(second);
    log.push_back(2);
    CHECK_FALSE(first.is_ready());
    CHECK(from.complete(1, std::make_error_code(std::errc::io_error)));
    const auto code = co_await code_of(std::move(first));
    CHECK(code == std::errc::io_error);
    log.push_back(1);
  }(source, order));
  CHECK(order == std::vector<int>{2, 1});
  CHECK(source.pending() == 0);
  CHECK(source.looks() > 0);
}

TEST_CASE("a manual source takes every token") {
  asio::io_context io;
  manual_source source(io);
  bool called = false;
  source.start(1, [&](std::error_code) { called = true; });
  std::future<void> standard = source.start(2, asio::use_future);
  auto later = source.start(3, cohort::deferred);
  CHECK(source.pending() == 2);
  bool deferred_called = false;
  std::move(later)([&](std::error_code) { deferred_called = true; });
  for (const int id : {1, 2, 3}) source.complete(id);
  CHECK_FALSE(called);  // never inside the call
  io.run();
  CHECK(called);
  CHECK(deferred_called);
  CHECK(standard.wait_for(0s) == std::future_status::ready);
}

TEST_CASE("operations of one name end oldest first") {
  asio::io_context io;
  manual_source source(io);
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) source.start(5, [&order, i](std::error_code) { order.push_back(i); });
  source.complete(5);
  while (order.empty()) io.run_one();
  io.run_for(2ms);
  CHECK(order == std::vector<int>{0});
  source.complete(5);
  source.complete(5);
  io.restart();
  io.run();
  CHECK(order == std::vector<int>{0, 1, 2});
}

TEST_CASE("cancelling a manual operation ends it, unless it stands for a borrowed buffer") {
  asio::io_context io;
  manual_source source(io);
  asio::cancellation_signal one;
  asio::cancellation_signal two;
  std::optional<std::error_code> first;
  std::optional<std::error_code> second;
  source.start(1, asio::bind_cancellation_slot(one.slot(), [&](std::error_code e) { first = e; }));
  source.start(2, manual_kind::borrowed,
               asio::bind_cancellation_slot(two.slot(), [&](std::error_code e) { second = e; }));
  one.emit(asio::cancellation_type::terminal);
  two.emit(asio::cancellation_type::terminal);
  while (!first) io.run_one();
  io.run_for(2ms);
  CHECK(first == asio::error::operation_aborted);
  CHECK_FALSE(second);
  source.complete(2);
  io.restart();
  io.run();
  CHECK(second == std::error_code());
}

TEST_CASE("a manual source may go before its context, or after it") {
  const auto watched = std::make_shared<int>(0);
  {
    asio::io_context io;
    {
      manual_source source(io);
      source.start(1, [watched](std::error_code) { ++*watched; });
      io.run_for(1ms);
    }
    CHECK(watched.use_count() == 1);
    io.restart();
    io.run();
  }
  {
    std::optional<asio::io_context> io(std::in_place);
    manual_source source(*io);
    source.start(1, [watched](std::error_code) { ++*watched; });
    io.reset();
    CHECK(watched.use_count() == 1);
    CHECK(source.pending() == 0);
    CHECK_FALSE(source.complete(1));
  }
  CHECK(*watched == 0);
}

TEST_CASE("a network keeps the order of each pair of ranks and mixes the pairs") {
  std::vector<std::vector<std::string>> runs;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    network<std::string> net(3, {.seed = seed});
    for (const char* text : {"a", "b", "c"}) {
      net.send(0, 2, text);
      net.send(1, 2, text);
    }
    CHECK(net.in_flight() == 6);
    runs.push_back(drain(net));
    CHECK(runs.back().size() == 6);
    for (const int from : {0, 1}) {
      std::string seen;
      for (const auto& line : runs.back()) {
        if (line[0] == '0' + from) seen += line.back();
      }
      CHECK(seen == "abc");
    }
  }
  std::sort(runs.begin(), runs.end());
  CHECK(std::unique(runs.begin(), runs.end()) - runs.begin() > 5);
}

TEST_CASE("the same seed is the same run, whatever is lost, doubled and delayed") {
  const auto once = [](std::uint64_t seed) {
    network<std::string> net(
        4, {.seed = seed, .overtaking = true, .drop = 0.2, .duplicate = 0.2, .max_delay = 5});
    for (int i = 0; i < 200; ++i) net.send(i % 4, (i * 7) % 4, std::to_string(i));
    auto order = drain(net);
    CHECK(net.delivered() == order.size());
    CHECK(net.sent() == 200);
    CHECK(net.dropped() > 10);
    CHECK(net.in_flight() == 0);
    return order;
  };
  CHECK(once(7) == once(7));
  CHECK(once(7) != once(8));
}

TEST_CASE("overtaking and delays break the order of a pair") {
  for (const bool overtaking : {true, false}) {
    network<std::string> net(2, {.seed = 3, .overtaking = overtaking, .max_delay = 8});
    std::vector<std::string> sent;
    for (int i = 10; i < 30; ++i) {
      sent.push_back("0>1:" + std::to_string(i));
      net.send(0, 1, std::to_string(i));
    }
    CHECK((drain(net) == sent) == !overtaking);
  }
}

TEST_CASE("links can be cut, healed and held, and single messages lost or doubled") {
  network<std::string> net(3);
  net.send(0, 1, "on its way");
  net.cut(0, 1, true);
  net.send(0, 1, "lost");
  net.send(1, 0, "other direction");
  CHECK(drain(net) == std::vector<std::string>{"1>0:other direction"});
  net.heal(0, 1);
  net.drop_next(0, 1);
  net.send(0, 1, "dropped");
  net.duplicate_next(0, 1);
  net.send(0, 1, "twice");
  CHECK(drain(net) == std::vector<std::string>{"0>1:twice", "0>1:twice"});
  CHECK(net.dropped() == 3);
  net.hold(0, 2);
  net.send(0, 2, "held");
  CHECK(drain(net).empty());
  CHECK(net.in_flight() == 1);
  net.release(0, 2);
  CHECK(drain(net) == std::vector<std::string>{"0>2:held"});
  net.isolate(2);
  net.send(0, 2, "lost");
  net.send(2, 1, "lost");
  CHECK(drain(net).empty());
}

TEST_CASE("a network carries what can only be moved, and a run that never ends is bounded") {
  network<std::unique_ptr<int>> net(2, {.duplicate = 1});
  net.send(0, 1, std::make_unique<int>(5));
  const auto back_and_forth = [&](auto what) {
    CHECK(*what.message == 5);
    net.send(what.to, what.from, std::move(what.message));
  };
  CHECK(net.run(back_and_forth, 100) == 100);
}
