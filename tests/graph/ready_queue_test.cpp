// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Which of the ready tasks of a rank runs next.

#include <cohort/graph/machine/ready_queue.hpp>

#include "graph/fake_ranks.hpp"
#include "support/catch.hpp"

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace graph_test;
using cohort::graph::machine::least_first;
using cohort::graph::machine::readiness;
using cohort::graph::machine::ready_queue;

std::vector<std::uint32_t> all_of(ready_queue& ready) {
  std::vector<std::uint32_t> order;
  while (!ready.empty()) order.push_back(ready.take());
  return order;
}

/// Inserts, takes and erases numbers below `end` as std::set does.
void compare_with_a_set(std::uint32_t end, unsigned seed) {
  std::mt19937 random(seed);
  least_first tried;
  std::set<std::uint32_t> expected;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint32_t number = random() % end;
    switch (random() % 8) {
      case 0:
        REQUIRE(tried.erase(number) == (expected.erase(number) == 1));
        break;
      case 1:
      case 2:
      case 3:
        if (expected.empty()) break;
        REQUIRE(tried.least() == *expected.begin());
        REQUIRE(tried.take() == *expected.begin());
        expected.erase(expected.begin());
        break;
      default:
        if (expected.insert(number).second) tried.insert(number);
    }
    REQUIRE(tried.empty() == expected.empty());
  }
  for (const std::uint32_t each : expected) REQUIRE(tried.take() == each);
  CHECK(tried.empty());
}

}  // namespace

TEST_CASE("the least number is taken, whatever was inserted and erased meanwhile") {
  for (const std::uint32_t end : {1U, 2U, 63U, 64U, 65U, 4095U, 4097U, 300'000U, 40'000'000U}) {
    CAPTURE(end);
    compare_with_a_set(end, end);
  }
  least_first cleared;
  for (const std::uint32_t one : {7U, 70'000U, 7'000U}) cleared.insert(one);
  cleared.clear();
  CHECK(cleared.empty());
  CHECK_FALSE(cleared.erase(7'000));
  cleared.insert(9);
  CHECK(cleared.take() == 9);
}

TEST_CASE("what is put off is not looked at again, and keeps its place") {
  ready_queue ready;
  for (const std::uint32_t one : {5U, 1U, 4U, 2U, 3U}) {
    ready.insert(one, one == 4 ? readiness::urgent : readiness::other);
  }
  int looks = 0;
  const auto is_two = [&](std::uint32_t one) {
    ++looks;
    return one == 2;
  };
  CHECK(ready.take_if(is_two) == 2);
  CHECK(looks == 3);  // 4, 1, 2
  CHECK_FALSE(ready.take_if(is_two));
  CHECK(looks == 5);  // 3, 5
  CHECK_FALSE(ready.take_if(is_two));
  CHECK(looks == 5);
  ready.insert(6, readiness::urgent);
  ready.insert(7, readiness::update);
  ready.hurry(5);
  ready.hurry(17);  // is not there
  CHECK(all_of(ready) == std::vector<std::uint32_t>{4, 5, 6, 7, 1, 3});
}

TEST_CASE("tasks run in the order in which the program names them") {
  fake_ranks all(1);
  all.hold_tasks = true;
  all.spawn(0, "c0", {plain("a0")});
  all.spawn(0, "d0");
  all.spawn(0, "b0");
  all.spawn(0, "a0");
  all.spawn(0, "e0", {plain("d0")});
  all.hold_tasks = false;
  all.all_end(window_end::close);
  CHECK(all.in(0).ran == std::vector<std::string>{"a(0)", "c(0)", "d(0)", "b(0)", "e(0)"});
}

TEST_CASE("what takes a value runs before new values are made") {
  fake_ranks all(1);
  all.hold_tasks = true;
  for (const char* const chain : {"a", "d", "g"}) all.spawn(0, chain + std::string("0"));
  // Each chain is longer by two; spawned step by step.
  for (const char* const step : {"ab", "de", "gh", "bc", "ef", "hi"}) {
    all.spawn(0, step[1] + std::string("0"), {take(step[0] + std::string("0"))});
  }
  all.hold_tasks = false;
  all.all_end(window_end::close);
  CHECK(all.in(0).ran == std::vector<std::string>{"a(0)", "b(0)", "c(0)", "d(0)", "e(0)", "f(0)",
                                                  "g(0)", "h(0)", "i(0)"});
}

TEST_CASE("tasks that other ranks wait for run first") {
  fake_ranks all(2);
  all.hold_tasks = true;
  for (const char* const one : {"a0", "b0", "c0", "d0"}) all.spawn(0, one);
  all.spawn(0, "r1", {plain("c0")});  // known before it is ready, or as soon
  all.await(1, "d0");                 // told by another rank
  all.run();
  all.hold_tasks = false;
  all.all_end(window_end::close);
  CHECK(all.in(0).ran == std::vector<std::string>{"c(0)", "d(0)", "a(0)", "b(0)"});
}
