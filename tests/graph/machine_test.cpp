// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Ranks of the task graph's machine that talk to each other: each rule once, and who sees what.

#include "support/catch.hpp"

#include "graph/fake_ranks.hpp"
#include "graph/inspector.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>
#include <vector>

using namespace graph_test;
using Catch::Matchers::ContainsSubstring;

// g++ 12 sees what is replaced below where it inlines one of new and delete.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace {

/// How many there are memory for; no number: for all.
std::optional<std::size_t> allocations_left;

}  // namespace

void* operator new(std::size_t bytes) {
  if (allocations_left && (*allocations_left)-- == 0) {
    allocations_left.reset();
    throw std::bad_alloc();
  }
  if (void* const block = std::malloc(bytes == 0 ? 1 : bytes)) return block;
  throw std::bad_alloc();
}
// Sanitizers have one of their own otherwise, whose memory is not freed as this is.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }

namespace {

void check_closed(fake_ranks& all, int scope = 0) {
  for (int rank = 0; rank < all.size(); ++rank) {
    if (!all.at(rank).dead) CHECK(all.of(rank, scope).closed());
  }
}
const failure& failure_in(const std::shared_ptr<awaited>& one) {
  REQUIRE(one->ended());
  REQUIRE(one->what->failed() != nullptr);
  return *one->what->failed();
}
std::int64_t value_in(const std::shared_ptr<awaited>& one) {
  REQUIRE(one->ended());
  if (one->what->failed() != nullptr) FAIL(one->what->failed()->text);
  return number_in(one->what);
}

}  // namespace

TEST_CASE("a diamond gives the same value on each rank, whoever spawns it") {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool only_first : {false, true}) {
      fake_ranks all(ranks);
      for (int rank = 0; rank < (only_first ? 1 : ranks); ++rank) {
        all.spawn(rank, "d0", {plain("b1"), plain("c2")}, 1000);
        all.spawn(rank, "b1", {plain("a0")}, 10);
        all.spawn(rank, "c2", {plain("a0")}, 100);
        all.spawn(rank, "a0");
      }
      std::vector<std::shared_ptr<awaited>> got;
      for (int rank = 0; rank < ranks; ++rank) got.push_back(all.await(rank, "d0"));
      all.run();
      for (const auto& one : got) CHECK(value_in(one) == 1112);
      all.all_end(window_end::close);
      check_closed(all);
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(all.in(rank).ends.size() == 1);
        CHECK(all.in(rank).ends[0].failed == 0);
        CHECK(all.in(rank).ends[0].divergences.empty());
      }
    }
  }
}

TEST_CASE("a uniform program sends one digest for each home and each value once") {
  fake_ranks all(3);
  for (int rank = 0; rank < 3; ++rank) {
    all.spawn(rank, "a0");
    all.spawn(rank, "b1", {plain("a0")});
    all.spawn(rank, "c1", {plain("a0")});
    all.spawn(rank, "d2", {plain("b1"), plain("c1")});
  }
  all.all_end(window_end::close);
  check_closed(all);
  std::vector<std::string> ran;
  for (int rank = 0; rank < 3; ++rank) {
    for (const std::string& one : all.in(rank).ran) ran.push_back(one);
  }
  CHECK(ran.size() == 4);
}

TEST_CASE("a task that nobody spawns ends who awaits it, and what depends on it") {
  for (const int ranks : {1, 2, 3}) {
    fake_ranks all(ranks);
    const int other = ranks - 1;
    all.spawn(0, "b0", {plain("x7"), plain("y1")}, 1, 0, 44);
    const auto dependent = all.await(other, "b0");
    const auto direct = all.await(0, "x7");
    all.run();
    const failure& first = failure_in(direct);
    CHECK(first.code == errc::not_spawned);
    CHECK(first.task == "x(7)");
    CHECK(first.rank == 7 % ranks);
    CHECK(first.text == "no rank has spawned or put x(7), whose home is rank " +
                            std::to_string(7 % ranks) +
                            "; it is needed by the await of rank 0 at await.cpp:20");
    CHECK(failure_in(dependent).code == errc::not_spawned);
    CHECK(failure_in(dependent).text == "no rank has spawned or put x(7), whose home is rank " +
                                            std::to_string(7 % ranks) +
                                            "; it is needed by b(0) of rank 0, spawned at "
                                            "test.cpp:44");
    // A verdict is not remembered: a later spawn runs, errors stay. [graph W4]
    all.spawn(other, "x7", {}, 5);
    const auto later = all.await(0, "x7");
    const auto unchanged = all.await(other, "b0");
    all.run();
    CHECK(value_in(later) == 5);
    CHECK(failure_in(unchanged).code == errc::not_spawned);
    all.all_end(window_end::close);
    check_closed(all);
    for (int rank = 0; rank < ranks; ++rank) {
      REQUIRE(all.in(rank).ends.size() == 1);
      CHECK(all.in(rank).ends[0].failed == 1);
      CHECK(all.in(rank).ends[0].first_failure->task == "x(7)");
    }
  }
}

TEST_CASE("a cycle fails each of its tasks with the dependencies that it waits for") {
  fake_ranks all(2);
  all.spawn(0, "a0", {plain("b1")});
  all.spawn(1, "b1", {plain("a0"), plain("d0")});
  all.spawn(1, "d0");
  all.spawn(1, "c1", {after("b1")});
  const auto first = all.await(1, "a0");
  const auto behind = all.await(0, "c1");
  all.run();
  CHECK(failure_in(first).code == errc::cycle);
  CHECK(failure_in(first).text ==
        "a(0) of rank 0, spawned at test.cpp:10, is in a cycle of dependencies or behind one; it "
        "waits for b(1)");
  CHECK(failure_in(behind).code == errc::cycle);
  CHECK_THAT(failure_in(behind).text, ContainsSubstring("c(1) of rank 1"));
  CHECK_THAT(failure_in(behind).text, ContainsSubstring("it waits for b(1)"));
  all.all_end(window_end::close);
  check_closed(all);
  CHECK(all.in(0).ends[0].failed == 3);
}

TEST_CASE("a failure goes through dependants with its root, and they do not run") {
  for (const int ranks : {1, 2, 3}) {
    fake_ranks all(ranks);
    all.spawn(0, "a1", {}, throws);
    all.spawn(ranks - 1, "b0", {plain("a1"), plain("n5")});  // n5 is not waited for
    all.spawn(0, "n5");
    all.spawn(0, "c2", {after("b0")});
    const auto last = all.await(ranks - 1, "c2");
    all.run();
    const failure& why = failure_in(last);
    CHECK(why.code == errc::task_failed);
    CHECK(why.task == "a(1)");
    CHECK(why.rank == 1 % ranks);
    CHECK_THAT(why.text, ContainsSubstring("spawned at test.cpp:10, has failed: no luck"));
    all.all_end(window_end::close);
    for (int rank = 0; rank < ranks; ++rank) {
      CHECK(all.in(rank).ends[0].failed == 3);
      for (const std::string& one : all.in(rank).ran) CHECK((one == "a(1)" || one == "n(5)"));
    }
  }
}

TEST_CASE("with fail_fast the first failure cancels the scope on all ranks") {
  node_options options;
  options.fail_fast = true;
  fake_ranks all(3, options);
  all.spawn(0, "a1", {}, throws);
  const auto waits = all.await(2, "z2");
  all.run();
  CHECK(failure_in(waits).code == errc::cancelled);
  CHECK_THAT(failure_in(waits).text, ContainsSubstring("cancelled by rank 1: a(1) of rank 1"));
  all.all_end(window_end::close);
  check_closed(all);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(all.in(rank).cancelled);
    REQUIRE(all.in(rank).ends[0].cancelled);
    CHECK(all.in(rank).ends[0].cancelled->code == errc::task_failed);
  }
}

TEST_CASE("one key with two definitions on one rank: the second handle ends with diverged") {
  fake_ranks all(2);
  CHECK(!all.spawn(0, "a1", {}, 1, 3, 11));
  CHECK(!all.spawn(0, "a1", {}, 1, 3, 12));  // equal, wherever it is spawned [graph S2]
  const content_ptr second = all.spawn(0, "a1", {}, 1, 4, 13);
  REQUIRE(second);
  CHECK(second->failed()->code == errc::diverged);
  CHECK(second->failed()->text ==
        "a(1) is spawned twice on rank 0, at test.cpp:11 and at test.cpp:13, with different "
        "definitions: their argument values differ; the first one counts");
  const auto got = all.await(1, "a1");
  all.run();
  CHECK(value_in(got) == 4);
  all.all_end(window_end::close);
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(all.in(rank).ends[0].divergences.size() == 1);
    CHECK(all.in(rank).ends[0].divergences[0].task == "a(1)");
    CHECK(all.in(rank).ends[0].divergences[0].text == second->failed()->text);
  }
}

TEST_CASE("ranks that define a task differently are reported with all ranks and both sites") {
  fake_ranks all(4);
  all.spawn(0, "a0", {plain("u1")}, 1, 0, 11);
  all.spawn(1, "a0", {plain("u1")}, 1, 0, 12);
  all.spawn(2, "a0", {plain("v1")}, 1, 0, 13);
  all.spawn(3, "a0", {plain("v1")}, 1, 0, 14);
  all.spawn(0, "u1");
  all.spawn(1, "u1");
  all.spawn(2, "v1");
  all.spawn(3, "v1");
  all.all_end(window_end::fence);
  for (int rank = 0; rank < 4; ++rank) {
    const window_report& report = all.in(rank).ends[0];
    REQUIRE(report.divergences.size() == 1);
    CHECK(report.divergences == all.in(0).ends[0].divergences);
    CHECK(report.divergences[0].task == "a(0)");
    CHECK_THAT(report.divergences[0].text,
               ContainsSubstring("their dependencies differ (the one with number 0 is u(1) and "
                                 "v(1))") &&
                   ContainsSubstring("by ranks 0, 1 at test.cpp:11, by ranks 2, 3 at test.cpp:1") &&
                   ContainsSubstring("rank 0, its home, runs the first of these"));
    CHECK(report.failed == 0);
  }
  // The first field in the order of (graph K5) is named: function, arguments, dependencies, result.
  all.spawn(0, "b0", {plain("u1")}, 2, 1, 11);
  all.spawn(1, "b0", {plain("v1")}, 3, 2, 12);
  all.spawn(0, "u1");
  all.spawn(0, "v1");
  all.all_end(window_end::close);
  REQUIRE(all.in(3).ends[1].divergences.size() == 1);
  CHECK_THAT(all.in(3).ends[1].divergences[0].text,
             ContainsSubstring("their functions differ (numbers 2 and 3)"));
  check_closed(all);
}

TEST_CASE("placements and options that differ are reported with both values and a rank for each") {
  fake_ranks all(3);
  all.placement = [](int rank, const std::string& family) {
    return family == "p" && rank == 2 ? "hash" : "block_cyclic(2, 2)";
  };
  all.agreed = [](int rank) { return rank == 1 ? "priority=3" : "priority=4"; };
  for (int rank = 0; rank < 3; ++rank) {
    all.end(rank, window_end::close);
  }
  all.run();
  for (int rank = 0; rank < 3; ++rank) {
    all.open(rank, 1);
    all.spawn(rank, "p0", {}, 1, 0, 10, 1);
  }
  all.all_end(window_end::close, 1);
  const std::vector<divergence>& found = all.in(2, 1).ends[0].divergences;
  REQUIRE(found.size() == 2);
  CHECK(found[0].task == "options of the scope");
  CHECK(found[0].text ==
        "the options of the scope differ: rank 0 says eager=8192, credit=262144, fail_fast=false, "
        "priority=4, rank 1 says eager=8192, credit=262144, fail_fast=false, priority=3");
  CHECK(found[1].task == "p");
  CHECK(found[1].text ==
        "the ranks do not agree about the placement of the family p: rank 0 says block_cyclic(2, "
        "2), rank 2 says hash");
}

TEST_CASE("who takes a value at home gets it in place, and a second taker ends with taken") {
  fake_ranks all(1);
  all.put(0, "v0", 5);
  all.spawn(0, "a0", {take("v0")}, 1, 0, 31);
  all.run();
  CHECK(all.in(0).moved == std::vector<std::string>{"5"});
  all.spawn(0, "b0", {take("v0")}, 1, 0, 32);
  const auto late = all.await(0, "b0");
  const auto reader = all.await(0, "v0");
  all.run();
  CHECK(failure_in(late).code == errc::taken);
  CHECK(failure_in(late).root == all.name(0, "v0").what);
  CHECK(failure_in(late).text ==
        "the value of v(0), whose home is rank 0, is taken by a(0) of rank 0, spawned at "
        "test.cpp:31; it cannot have it: b(0) of rank 0, spawned at test.cpp:32");
  CHECK(failure_in(reader).code == errc::taken);
  CHECK_THAT(failure_in(reader).text, ContainsSubstring("the await of rank 0 at await.cpp:20"));
  const auto first = all.await(0, "a0");
  CHECK(value_in(first) == 6);
  all.all_end(window_end::close);
  CHECK(all.in(0).ends[0].failed == 1);
}

TEST_CASE("a value that somebody else here still reads is not moved") {
  fake_ranks all(1);
  all.hold_tasks = true;
  all.put(0, "v0", 5);
  all.spawn(0, "r0", {plain("v0")});
  all.spawn(0, "a0", {take("v0")});  // neglects its duty [graph M5]
  node& here = all.of(0);
  const auto reader = here.start_next();
  REQUIRE(reader);
  const auto taker = here.start_next();
  REQUIRE(taker);
  CHECK(taker->uses[0] == use_kind::take);
  CHECK_FALSE(taker->inputs[0].may_move);
  CHECK(number_in(reader->inputs[0].what) == 5);
  here.ended(taker->index, make(1));
  here.ended(reader->index, make(2));
  all.hold_tasks = false;
  all.all_end(window_end::close);
  check_closed(all);
}

TEST_CASE("a value is taken from another rank, and two ranks that take it do not both get it") {
  for (const bool first_spawns_all : {false, true}) {
    fake_ranks all(3);
    all.put(0, "v0", 5);
    const auto spawn = [&](int rank) {
      all.spawn(rank, "a1", {take("v0")}, 1, 0, 41);
      all.spawn(rank, "b2", {take("v0")}, 1, 0, 42);
    };
    for (int rank = 0; rank < (first_spawns_all ? 1 : 3); ++rank) spawn(rank);
    const auto a = all.await(0, "a1");
    const auto b = all.await(1, "b2");
    all.run();
    const bool a_won = a->what->failed() == nullptr;
    const failure& lost = failure_in(a_won ? b : a);
    CHECK(value_in(a_won ? a : b) == 6);
    CHECK(lost.code == errc::taken);
    CHECK_THAT(lost.text, ContainsSubstring("test.cpp:41") && ContainsSubstring("test.cpp:42"));
    CHECK(all.in(a_won ? 1 : 2).moved == std::vector<std::string>{"5"});
    // Who asks for it later, at home or where it was taken, is too late. [graph M4]
    const auto at_home = all.await(0, "v0");
    const auto elsewhere = all.await(a_won ? 1 : 2, "v0");
    all.run();
    CHECK(failure_in(at_home).code == errc::taken);
    CHECK(failure_in(elsewhere).code == errc::taken);
    all.all_end(window_end::close);
    check_closed(all);
  }
}

TEST_CASE("a reader that the taker depends on has had the value") {
  fake_ranks all(2);
  for (int rank = 0; rank < 2; ++rank) {
    all.spawn(rank, "a0", {}, 1, 0);
    all.spawn(rank, "r1", {plain("a0")}, 10);
    all.spawn(rank, "t0", {after("r1"), take("a0")}, 100);
  }
  const auto r = all.await(0, "r1");
  const auto t = all.await(1, "t0");
  all.run();
  CHECK(value_in(r) == 11);
  CHECK(value_in(t) == 101);
  all.all_end(window_end::close);
  check_closed(all);
}

TEST_CASE("an await takes; one that is withdrawn keeps its claim") {
  for (const int ranks : {1, 2}) {
    fake_ranks all(ranks);
    const int other = ranks - 1;
    all.put(0, "v0", 5);
    const auto got = all.await(other, "v0", true);
    all.run();
    CHECK(value_in(got) == 5);
    CHECK(got->may_move);
    await_number number = 0;
    const auto never = all.await(other, "u0", true, 0, 0, &number);
    REQUIRE(number != 0);
    all.run();
    CHECK(failure_in(never).code == errc::not_spawned);
    const producer second = all.of(other).fork();  // busy: no verdict
    const auto withdrawn = all.await(other, "w0", true, 0, 0, &number);
    all.run();
    all.of(other).withdraw(number);
    all.put(0, "w0", 7);
    all.run();
    CHECK_FALSE(withdrawn->ended());
    const auto reads = all.await(0, "w0");
    const auto takes = all.await(0, "w0", true);
    CHECK(value_in(reads) == 7);
    CHECK(failure_in(takes).code == errc::taken);
    CHECK_THAT(failure_in(takes).text,
               ContainsSubstring("an await of rank " + std::to_string(other)));
    all.of(other).end(second);
    all.all_end(window_end::close);
    check_closed(all);
  }
}

TEST_CASE("a source is put by its home alone, and is there for all") {
  fake_ranks all(2);
  const content_ptr refused = all.put(0, "v1", 5);
  REQUIRE(refused);
  CHECK(refused->failed()->code == errc::not_local);
  CHECK(refused->failed()->text ==
        "v(1) cannot be spawned or put by rank 0 at put.cpp:5: only its home, rank 1, puts its "
        "value");
  const auto got = all.await(0, "v1");
  CHECK(!all.put(1, "v1", 6));
  CHECK(!all.put(1, "v1", 6));
  const content_ptr other = all.put(1, "v1", 7);
  REQUIRE(other);
  CHECK(other->failed()->code == errc::diverged);
  all.run();
  CHECK(value_in(got) == 6);
  all.all_end(window_end::close);
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(all.in(rank).ends[0].refused.size() == 1);
    CHECK(all.in(rank).ends[0].refused[0].text == refused->failed()->text);
    CHECK(all.in(rank).ends[0].divergences.size() == 1);
  }
}

TEST_CASE("spawns that cannot be right are refused and have no effect") {
  fake_ranks all(2);
  const content_ptr both = all.spawn(0, "a0", {plain("v0"), take("v0")});
  REQUIRE(both);
  CHECK(both->failed()->code == errc::invalid_argument);
  CHECK_THAT(both->failed()->text, ContainsSubstring("v(0) is both taken and read by it"));
  const content_ptr twice = all.spawn(0, "a0", {take("v0"), take("v0")});
  REQUIRE(twice);
  const content_ptr away = all.spawn(0, "b1", {}, 1, 0, 10, 0, false);
  REQUIRE(away);
  CHECK(away->failed()->code == errc::not_supported);
  CHECK(!all.spawn(1, "b1", {}, 1, 0, 10, 0, false));
  CHECK(!all.spawn(0, "c0", {plain("v0"), plain("v0"), after("v0")}));
  all.put(0, "v0", 3);
  const auto c = all.await(0, "c0");
  const auto b = all.await(0, "b1");
  const auto a = all.await(1, "a0");
  all.run();
  CHECK(value_in(c) == 7);
  CHECK(value_in(b) == 1);
  CHECK(failure_in(a).code == errc::not_spawned);
  const content_ptr old = all.of(0).stale(all.name(0, "a0"), 0, {"x/s.cpp", 3});
  CHECK(old->failed()->code == errc::stale_name);
  CHECK(old->failed()->text ==
        "a(0) was named in window 0 and is used by rank 0 at s.cpp:3 in window 0: a fence has "
        "forgotten it");
  all.all_end(window_end::close);
  CHECK(all.in(1).ends[0].refused.size() == 2);  // a(0) twice, of which the last is told
}

TEST_CASE("a value without a wire format stays at home, and who wants it elsewhere is told") {
  fake_ranks all(2);
  all.spawn(0, "a0", {}, stays);
  all.spawn(0, "b0", {plain("a0")});
  all.spawn(0, "c1", {plain("a0")});
  const auto here = all.await(0, "b0");
  const auto there = all.await(0, "c1");
  const auto asks = all.await(1, "a0");
  all.run();
  CHECK(value_in(here) == 98);
  CHECK(failure_in(there).code == errc::not_supported);
  CHECK(failure_in(asks).code == errc::not_supported);
  CHECK(failure_in(asks).text ==
        "the value of a(0) is needed on rank 1, but its type has no wire format, so it cannot "
        "leave its home, rank 0");
  all.all_end(window_end::close);
  CHECK(all.in(0).ends[0].failed == 1);
}

TEST_CASE("again runs the same tasks once more, with what is put anew") {
  for (const int ranks : {1, 2, 3}) {
    fake_ranks all(ranks);
    std::vector<std::size_t> words(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      all.spawn(rank, "p1", {take("v0")}, 10);
      all.spawn(rank, "q0", {plain("p1"), plain("k0")}, 100);
      all.spawn(rank, "k0", {}, 1000);
    }
    for (int window = 0; window < 4; ++window) {
      all.rest = window_end::again;
      all.put(0, "v0", window);
      if (window == 2) all.spawn(ranks - 1, "m0", {plain("q0")}, 5);  // more may be spawned
      const auto q = all.await(ranks - 1, "q0");
      const auto m = window >= 2 ? all.await(0, "m0") : nullptr;
      all.run();
      CHECK(value_in(q) == 1110 + window);
      if (m) CHECK(value_in(m) == 1115 + window);
      CHECK(all.of(0).window() == static_cast<std::uint32_t>(window));
      const std::size_t packets = all.packets;
      all.all_end(window_end::again);
      if (ranks > 1) CHECK(all.packets > packets);
      if (window > 1) continue;
      for (int rank = 0; rank < ranks; ++rank) {  // nobody has named anything new
        std::size_t& before = words[static_cast<std::size_t>(rank)];
        const std::size_t now = cohort::graph::machine::inspector::words(all.of(rank));
        if (window == 1) CHECK(now == before);
        before = now;
      }
    }
    // A source that is not put again leaves its readers without.
    const auto q = all.await(0, "q0");
    all.run();
    CHECK(failure_in(q).code == errc::not_spawned);
    CHECK_THAT(failure_in(q).text, ContainsSubstring("v(0)"));
    all.all_end(window_end::close);
    check_closed(all);
  }
}

TEST_CASE("names are used again in the next window, and nothing is left of the last") {
  fake_ranks all(2);
  for (int window = 0; window < 3; ++window) {
    for (int rank = 0; rank < 2; ++rank) {
      all.spawn(rank, "a0", {}, 1, window + 1);
      all.spawn(rank, "b1", {plain("a0")}, 10);
    }
    const auto b = all.await(0, "b1");
    all.run();
    CHECK(value_in(b) == 12 + window);
    all.all_end(window_end::fence);
    const auto gone = all.await(1, "b1");
    all.run();
    CHECK(failure_in(gone).code == errc::not_spawned);
  }
  all.all_end(window_end::close);
  check_closed(all);
}

TEST_CASE("large values go one after the other where there is one tag") {
  fake_ranks all(2, {}, 1);
  for (int rank = 0; rank < 2; ++rank) {
    all.spawn(rank, "a0", {}, makes_large);
    all.spawn(rank, "b0", {}, makes_large);
    all.spawn(rank, "e0", {}, makes_large);
    all.spawn(rank, "c1", {plain("a0"), plain("b0"), plain("e0")});
  }
  const auto c = all.await(0, "c1");
  all.run();
  CHECK(value_in(c) == 3 * 98 + 1);
  CHECK(all.receives == 3);
  CHECK(all.most_transfers == 1);
  all.all_end(window_end::close);
  check_closed(all);
}

TEST_CASE("a node for which there is no memory is not left in its endpoint") {
  for (std::size_t allocations = 0;; ++allocations) {
    endpoint sender(1, 2);
    endpoint point(0, 2);
    node_options options;
    options.ranks = 2;
    options.rank = 1;
    node other(sender, scope_id{0, 0}, options);
    failure cause;
    cause.code = errc::cancelled;
    other.cancel(cause);
    std::vector<std::byte> packet;
    REQUIRE(sender.take_message(0, packet));
    point.receive(1, packet);  // parked until the scope is open
    options.rank = 0;
    std::optional<node> here;
    allocations_left = allocations;
    try {
      here.emplace(point, scope_id{0, 0}, options);
    } catch (const std::bad_alloc&) {
      allocations_left.reset();
      CHECK(point.open_nodes().empty());
      point.lost(1);
      continue;
    }
    allocations_left.reset();
    CHECK(allocations > 5);
    CHECK(here->cause());
    break;
  }
}

TEST_CASE("who has left needs not say goodbye in a scope that breaks up") {
  fake_ranks all(4);
  all.all_end(window_end::fence);
  for (int rank = 0; rank < 4; ++rank) all.end(rank, window_end::close);
  const auto is_closed = [&](int rank) { return all.of(rank).closed(); };
  // The end comes to rank 3 through rank 1, which is lost first.
  while (!is_closed(0) || !is_closed(1) || !is_closed(2)) {
    for (const int from : {3, 2, 1, 0}) {
      all.run_scope(from, all.in(from));
      for (int to = 0; to < 4; ++to) {
        if (!is_closed(1) || to != 3) all.pass_packet(from, to);
      }
    }
  }
  REQUIRE_FALSE(is_closed(3));
  all.kill(1);
  all.tell_lost(3, 1);
  all.at(3).point->left(0);
  CHECK_FALSE(is_closed(3));
  all.at(3).point->left(2);
  CHECK(is_closed(3));
  CHECK(all.of(3).report().cancelled);
  // It knows that from the beginning where it opens another one.
  node& next = all.open(3, 1);
  next.end_window(0, window_end::close);
  CHECK(next.closed());
}

TEST_CASE("a grant with a tag that there is not is refused") {
  fake_ranks all(2, {}, 4);
  all.spawn(0, "a0", {}, makes_large);
  const auto a = all.await(1, "a0");
  all.pass_packet(1, 0);
  all.run_scope(0, all.in(0));
  const key what = all.name(0, "a0").what;
  const auto granted = [&](std::uint32_t tag) {
    std::vector<std::byte> messages;
    cohort::wire::writer in(messages);
    const std::vector<std::byte> body = cohort::wire::encode(grant_message{what, tag});
    in.byte(static_cast<std::uint8_t>(message_kind::grant));
    in.varint(0);
    in.varint(body.size());
    in.raw(body);
    std::vector<std::byte> packet;
    cohort::wire::writer out(packet);
    out.put(scope_id{0, 0});
    out.varint(messages.size());
    out.raw(messages);
    all.at(0).point->receive(1, packet);
  };
  for (const std::uint32_t tag : {4U, 1U << 30U, ~0U}) {
    CHECK_THROWS_AS(granted(tag), std::system_error);
    CHECK(all.of(0).actions().empty());
  }
  granted(3);
  CHECK(all.of(0).actions().size() == 1);
}

TEST_CASE("without credit values are offered, and credit comes back with their use") {
  node_options options;
  options.credit = 16;
  fake_ranks all(2, options);
  std::vector<used> uses;
  for (int rank = 0; rank < 2; ++rank) {
    uses.clear();
    for (int i = 0; i < 6; ++i) {
      const std::string one = "a" + std::to_string(2 * i);
      all.spawn(rank, one);
      uses.push_back(plain(one));
    }
    all.spawn(rank, "c1", uses);
  }
  all.run();
  const auto c = all.await(0, "c1");
  all.run();
  CHECK(value_in(c) == 7);
  all.all_end(window_end::close);
  check_closed(all);
}

TEST_CASE("a cancellation ends awaits with its cause, and fences tell it") {
  fake_ranks all(3);
  const auto waits = all.await(2, "z0");
  all.hold_tasks = true;
  all.spawn(1, "a1");
  const auto running = all.of(1).start_next();
  REQUIRE(running);
  failure cause;
  cause.text = "enough";
  all.of(0).cancel(cause);
  all.run();
  CHECK(failure_in(waits).code == errc::cancelled);
  CHECK(failure_in(waits).text == "the scope was cancelled by rank 0: enough");
  CHECK(all.in(1).cancelled);
  const content_ptr refused = all.spawn(1, "b1");
  REQUIRE(refused);
  CHECK(refused->failed()->code == errc::cancelled);  // [graph S4]
  all.of(1).ended(running->index, make(1));
  all.all_end(window_end::fence);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(all.in(rank).ends.size() == 1);
    CHECK(all.in(rank).ends[0].cancelled->text == "enough");
  }
  all.all_end(window_end::close);  // it stays cancelled
  check_closed(all);
  CHECK(all.in(2).ends[1].cancelled->rank == 0);
}

TEST_CASE("the loss of a rank breaks the scope, and goodbyes close it") {
  for (const bool one_hears : {false, true}) {
    fake_ranks all(4);
    all.spawn(0, "a3", {}, makes_large);
    all.spawn(0, "b1", {plain("a3")});
    const auto waits = all.await(0, "b1");
    all.hold_transfers = true;
    all.run_for(100);
    REQUIRE(all.transfers.size() == 1);
    all.kill(3);
    all.transfers.clear();
    for (int rank = 0; rank < (one_hears ? 1 : 3); ++rank) all.tell_lost(rank, 3);
    all.run();
    CHECK(failure_in(waits).code == errc::peer_lost);
    CHECK(failure_in(waits).rank == 3);
    CHECK(failure_in(waits).text == "rank 3 is lost: its loss was reported");
    for (int rank = 0; rank < 3; ++rank) {
      if (all.in(rank).ends.empty()) all.end(rank, window_end::fence);
    }
    all.run();
    for (int rank = 0; rank < 3; ++rank) {
      REQUIRE(all.in(rank).ends.size() == 1);
      CHECK(all.in(rank).ends[0].cancelled->code == errc::peer_lost);
      all.end(rank, window_end::close);
    }
    all.run();
    check_closed(all);
  }
}

TEST_CASE("a rank that has closed answers the goodbye of one that has not heard of the end") {
  fake_ranks all(3);
  for (int rank = 0; rank < 3; ++rank) all.end(rank, window_end::close);
  // The verdict reaches rank 1 and not rank 2: rank 0 dies in between.
  for (int i = 0; i < 20 && !all.of(1).closed(); ++i) {
    for (int from = 0; from < 3; ++from) {
      if (!all.of(0).closed()) {
        for (int to = 0; to < 3; ++to) all.pass_packet(from, to);
      } else {
        all.pass_packet(0, 1);
      }
    }
  }
  REQUIRE(all.of(1).closed());
  REQUIRE_FALSE(all.of(2).closed());
  all.at(1).scopes.clear();  // its node is gone, too
  all.kill(0);
  all.tell_lost(1, 0);
  all.tell_lost(2, 0);
  all.run();
  CHECK(all.of(2).closed());
}

TEST_CASE("messages for a scope that is not open yet wait for it") {
  fake_ranks all(2);
  all.open(0, 5);
  all.spawn(0, "a1", {}, 4, 0, 10, 5);
  const auto early = all.await(0, "a1", false, 0, 5);
  all.run();
  CHECK_FALSE(early->ended());
  all.open(1, 5);
  all.of(1, 5).end_window(0, window_end::close);
  all.run();
  CHECK(value_in(early) == 4);
  all.of(0, 5).end_window(0, window_end::close);
  all.all_end(window_end::close);
  CHECK(all.of(0, 5).closed());
  CHECK(all.of(1, 5).closed());
  CHECK_THROWS_AS(all.open(0, 5), cohort::error);  // that opening is over
  all.open(0, 5, 1);
  all.open(1, 5, 1);
  all.all_end(window_end::close, 5);
  check_closed(all, 5);
}

TEST_CASE("a second producer may await while the first one is in the fence") {
  fake_ranks all(2);
  all.others_rest = false;
  const producer second = all.of(0).fork();
  all.of(0).end_window(0, window_end::fence);
  all.of(1).end_window(0, window_end::fence);
  all.run();
  CHECK(all.in(0).ends.empty());
  const auto got = all.await(0, "a1", false, second);
  all.run();
  CHECK(failure_in(got).code == errc::not_spawned);
  CHECK(all.in(0).ends.empty());
  all.spawn(0, "a1");
  const auto again = all.await(0, "a1", false, second);
  all.run();
  CHECK(value_in(again) == 1);
  all.of(0).end(second);
  all.run();
  CHECK(all.in(0).ends.size() == 1);
  CHECK(all.of(0).fork() == second);
  all.of(0).end(second);
  CHECK_THROWS_AS(all.of(0).end(second), cohort::error);
  all.all_end(window_end::close);
  check_closed(all);
}

TEST_CASE("if one closes all close, and who asked for less is told") {
  fake_ranks all(3);
  all.spawn(0, "a0");
  all.of(0).end_window(0, window_end::again);
  all.of(1).end_window(0, window_end::fence);
  all.of(2).end_window(0, window_end::fence);
  all.run();
  CHECK(all.in(0).ends[0].closed);
  CHECK_FALSE(all.in(1).ends[0].closed);
  CHECK(all.in(0).ran.size() == 1);
  all.of(0).end_window(0, window_end::fence);
  all.of(1).end_window(0, window_end::close);
  all.of(2).end_window(0, window_end::close);
  all.run();
  check_closed(all);
  CHECK(all.in(0).ends[1].closed);
  CHECK_FALSE(all.in(2).ends[1].closed);
  const content_ptr refused = all.spawn(0, "b0");
  REQUIRE(refused);
  CHECK(refused->failed()->code == errc::closed);
}

TEST_CASE("a stall report names what is waited for, and who is silent") {
  fake_ranks all(3);
  all.hold_tasks = true;
  all.spawn(1, "a1", {plain("b2"), plain("c0")});
  all.spawn(0, "c0");
  const producer busy = all.of(2).fork();  // no verdict comes
  const auto a = all.await(0, "a1");
  const auto d = all.await(0, "d1");
  all.of(1).set_time(1000);
  all.run();
  all.of(0).start_report();
  CHECK_FALSE(all.of(0).has_report());
  all.run();
  CHECK(all.of(0).has_report());
  stall_report told = all.of(0).take_report();
  CHECK(told.silent.empty());
  REQUIRE(told.tasks.size() == 2);
  CHECK(told.tasks[0].task == "a(1)");
  CHECK(told.tasks[0].home == 1);
  CHECK(told.tasks[0].state == "waits");
  CHECK(told.tasks[0].declarers == std::vector<int>{1});
  CHECK(told.tasks[0].missing == std::vector<std::string>{"b(2)", "c(0)"});
  CHECK(told.tasks[0].age == 1000);
  CHECK(told.tasks[1].state == "not spawned");
  all.of(0).start_report();
  told = all.of(0).take_report();  // nobody has been asked yet
  CHECK(told.silent == std::vector<int>{1});
  CHECK(told.tasks[0].state == "unknown");
  all.hold_tasks = false;
  all.of(2).end(busy);
  all.run();
  CHECK(a->ended());
  CHECK(d->ended());
  all.all_end(window_end::close);
}

TEST_CASE("a stall report does not wait for answers in a scope that is cancelled meanwhile") {
  fake_ranks all(2);
  const auto a = all.await(0, "a1");
  all.of(0).start_report();
  CHECK_FALSE(all.of(0).has_report());
  all.of(0).cancel({});
  CHECK(all.of(0).has_report());
  all.run();
  CHECK(a->ended());
  const stall_report told = all.of(0).take_report();
  REQUIRE(told.tasks.size() == 1);
  CHECK(told.tasks[0].task == "a(1)");
  const task_index also[] = {all.of(0).record_of(all.name(0, "a1"))};
  all.of(0).start_report(also);
  CHECK(all.of(0).has_report());
  all.all_end(window_end::close);
}

TEST_CASE("a patient node contributes when it is told, and at once when nothing waits") {
  node_options options;
  options.patient = true;
  fake_ranks all(2, options);
  const auto a = all.await(0, "a1");
  all.end(1, window_end::close);
  all.run();
  CHECK_FALSE(a->ended());
  CHECK(all.of(0).has_contribution());
  CHECK_FALSE(all.of(1).has_contribution());
  for (int wave = 0; wave < 3; ++wave) {  // the first has not seen the want
    CHECK_FALSE(a->ended());
    all.of(0).flush_contribution();
    all.run();
  }
  REQUIRE(a->ended());
  CHECK(a->what->failed()->code == errc::not_spawned);
  CHECK_FALSE(all.of(0).has_contribution());
  all.all_end(window_end::close);
  check_closed(all);
}

TEST_CASE("bytes that are no message throw, and the endpoint goes on without that rank") {
  for (int what = 0; what < 6; ++what) {
    fake_ranks all(3);
    all.spawn(0, "a1");
    all.run();
    std::vector<std::byte> packet;
    cohort::wire::writer out(packet);
    std::vector<std::byte> messages;
    cohort::wire::writer in(messages);
    out.put(what == 0 ? scope_id{0, ~std::uint64_t{0} >> 1U} : scope_id{0, 0});
    const auto message = [&](std::uint8_t kind, const std::vector<std::byte>& body) {
      in.byte(kind);
      in.varint(0);
      in.varint(body.size());
      in.raw(body);
    };
    if (what == 0) message(77, {});                                                // no kind
    if (what == 1) message(3, {});                                                 // cut short
    if (what == 2) message(6, cohort::wire::encode(grant_message{{1, 2, 0}}));     // not offered
    if (what == 3) message(3, cohort::wire::encode(want_message{{1, 2, 9}, {}}));  // rank 9
    if (what == 4) message(12, cohort::wire::encode(verdict{}));                   // from no parent
    if (what == 5) message(7, cohort::wire::encode(credit_message{1}));
    out.varint(messages.size() + (what == 5 ? 1 : 0));
    out.raw(messages);
    CHECK_THROWS_AS(all.at(0).point->receive(2, packet), std::system_error);
    all.kill(2);
    all.tell_lost(0, 2);
    all.tell_lost(1, 2);
    for (int rank = 0; rank < 2; ++rank) all.end(rank, window_end::close);
    all.run();
    check_closed(all);
  }
}
