// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What programs rarely do, and orders of events that are rare: each of these has gone wrong once.
#include <cohort/comm.hpp>
#include <cohort/graph.hpp>

#include <numeric>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "graph/ranks_support.hpp"
#include "support/patience.hpp"

namespace {

using namespace graph_test;

int same(int value) { return value; }
int sum(std::span<const int> all) { return std::accumulate(all.begin(), all.end(), 0); }
int sum_of_own(std::vector<int> all) { return sum(all); }

// ---- ranges whose elements are made as they are looked at ----

task ranges_of_temporaries(graph::scope& s) {
  auto f = s.tasks<&same>("f");
  auto all = s.tasks<&sum>("sum");
  auto own = s.tasks<&sum_of_own>("own");
  auto last = s.tasks<&same>("last");
  for (int i = 0; i < 5; ++i) f(i).spawn(i);
  const auto named = std::views::iota(0, 5) | std::views::transform([&f](int i) { return f(i); });
  all(0).spawn(named);
  own(0).spawn(take(named), after(all(0)));
  last(0).spawn(
      7, after(std::views::iota(0, 2) | std::views::transform([&](int i) -> graph::task<int> {
                 return i == 0 ? graph::task<int>(all(0)) : own(0);
               })));
  const int read = co_await all(0).get();
  CHECK(read == 10);
  const int taken = co_await own(0).get();
  CHECK(taken == 10);
  const int behind = co_await last(0).get();
  CHECK(behind == 7);
}

task ranges_that_spawn(graph::scope& s) {
  auto f = s.tasks<&same>("f");
  auto all = s.tasks<&sum>("sum");
  const auto spawned =
      std::views::iota(0, 5) | std::views::transform([&f](int i) { return f(i).spawn(i); });
  all(0).spawn(spawned);
  const int got = co_await all(0).get();
  CHECK(got == 10);
}

// ---- windows ----

task fences_of_an_ended_fork(graph::scope& s) {
  graph::scope other = s.fork();
  other.end();
  auto wrong = other.fence();
  const auto code = co_await cohort_test::code_of<graph::report>(std::move(wrong));
  CHECK(code == errc::invalid_argument);
  const graph::report ended = co_await s.fence();
  CHECK(ended.failed == 0);
}

}  // namespace

TEST_CASE("the tasks of a range may be named, and spawned, as it is looked at",
          "[graph][corners]") {
  in_scope(&ranges_of_temporaries);
  in_scope(&ranges_that_spawn);
}

TEST_CASE("a fence that does not begin leaves nothing behind", "[graph][corners]") {
  in_scope(&fences_of_an_ended_fork);
}
