// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The table "Who sees what": each mistake becomes an error at the await or in the report, with its
// facts.
#include <cohort/collectives.hpp>
#include <cohort/comm.hpp>
#include <cohort/graph.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "graph/ranks_support.hpp"
#include "support/caught.hpp"
#include "support/patience.hpp"

namespace {

using namespace graph_test;
using cohort_test::meet;
using namespace std::chrono_literals;

int ran = 0;  // tasks that must not run

int same(int value) { return value; }
int plus(int a, int b) { return a + b; }
int never(int value) {
  ++ran;
  return value;
}
int fails(int value) {
  if (value < 0) throw std::out_of_range("no negative number");
  return value;
}
int difference(int a, int b) { return a - b; }

// ---- a task throws ----

task throwing(graph::scope& s) {
  const int last = s.size() - 1;
  auto bad = s.tasks<&fails>("bad", graph::on(last));
  auto then = s.tasks<&never>("then", graph::on(0));
  auto far = s.tasks<&never>("far", graph::on(last));
  auto good = s.tasks<&same>("good");
  ran = 0;
  bad(7).spawn(-1);
  then(1).spawn(bad(7));
  far(2).spawn(then(1));
  good(0).spawn(5);
  const std::vector<graph::task<int>> all{bad(7), then(1), far(2)};
  for (const auto& each : all) {
    const auto why = co_await error_of(each.get());
    REQUIRE(why);
    CHECK(why->code() == errc::task_failed);
    CHECK(why->root() == "bad(7)");
    CHECK(why->rank() == last);
    CHECK(has(why->what(), "bad(7)"));
    CHECK(has(why->what(), "who_sees_test.cpp:"));
    CHECK(has(why->what(), "std::out_of_range: no negative number"));
  }
  try {
    static_cast<void>(co_await bad(7).get());
    FAIL_CHECK("completed, but must fail");
  } catch (const graph::error& outer) {
    const auto* const nested = dynamic_cast<const std::nested_exception*>(&outer);
    REQUIRE(nested != nullptr);
    CHECK_THROWS_AS(nested->rethrow_nested(), std::out_of_range);
  }
  const int untouched = co_await good(0).get();
  CHECK(untouched == 5);
  const graph::report ended = co_await s.fence();
  CHECK(ended.failed == 3);
  REQUIRE(ended.first_failure);
  CHECK(ended.first_failure->task == "bad(7)");
  CHECK(ended.first_failure->rank == last);
  CHECK(ran == 0);
}

task fails_at_the_end(graph::scope& s) {
  auto bad = s.tasks<&fails>("bad", graph::on(0));
  bad(1).spawn(-1);
  co_return;
}

// ---- a key that nobody spawns ----

task not_spawned(graph::scope& s) {
  auto f = s.tasks<&same>("f");
  auto g = s.tasks<&plus>("g");
  auto other = s.tasks<&same>("other");
  other(1).spawn(1);
  const auto dependent = g(1).spawn(f(3), other(1));
  const auto first = co_await error_of(dependent.get());
  REQUIRE(first);
  CHECK(first->code() == errc::not_spawned);
  CHECK(first->root() == "f(3)");
  CHECK(first->rank() == f(3).home());
  CHECK(has(first->what(), "f(3)"));
  CHECK(has(first->what(), "g(1)"));
  const auto second = co_await error_of(f(3).get());
  REQUIRE(second);
  CHECK(second->code() == errc::not_spawned);
  CHECK(has(second->what(), "who_sees_test.cpp:"));
  CHECK(has(second->what(), "rank " + std::to_string(f(3).home())));
  // A later spawn runs; what has failed stays failed.
  f(3).spawn(4);
  const int late = co_await f(3).get();
  CHECK(late == 4);
  const auto again = co_await error_of(dependent.get());
  CHECK((again && again->code() == errc::not_spawned));
  const graph::report ended = co_await s.fence();
  CHECK(ended.failed == 1);
  REQUIRE(ended.first_failure);
  CHECK(ended.first_failure->code == errc::not_spawned);
}

// ---- a cycle ----

task cycle(graph::scope& s) {
  auto f = s.tasks<&same>("f", graph::block_cyclic(s.size(), 1));
  auto behind = s.tasks<&same>("behind");
  for (int i = 0; i < 3; ++i) f(i, 0).spawn(f((i + 1) % 3, 0));
  behind(0).spawn(f(0, 0));
  const auto why = co_await error_of(f(0, 0).get());
  REQUIRE(why);
  CHECK(why->code() == errc::cycle);
  CHECK(why->root() == "f(0, 0)");
  CHECK(has(why->what(), "it waits for f(1, 0)"));
  const auto follows = co_await error_of(behind(0).get());
  REQUIRE(follows);
  CHECK(follows->code() == errc::cycle);
  CHECK(follows->root() == "behind(0)");
  CHECK(has(follows->what(), "f(0, 0)"));
  const graph::report ended = co_await s.fence();
  CHECK(ended.failed == 4);
}

// ---- divergences ----

task other_argument(graph::scope& s) {
  auto f = s.tasks<&same>("f", graph::on(0));
  f(1).spawn(s.rank() == s.size() - 1 ? 10 : 20);
  const int got = co_await f(1).get();
  CHECK((got == 10 || got == 20));
}
task other_function(graph::scope& s) {
  graph::task<int> named;
  if (s.rank() == s.size() - 1) {
    named = s.tasks<&difference>("f", graph::on(0))(1).spawn(5, 3);
  } else {
    named = s.tasks<&plus>("f", graph::on(0))(1).spawn(5, 3);
  }
  const int got = co_await named.get();
  CHECK((got == 8 || got == 2));
}
task other_dependency(graph::scope& s) {
  auto f = s.tasks<&same>("f", graph::on(0));
  auto g = s.tasks<&plus>("g", graph::on(0));
  f(0).spawn(0);
  f(1).spawn(1);
  g(1).spawn(f(s.rank() == s.size() - 1 ? 1 : 0), 7);
  const int got = co_await g(1).get();
  CHECK((got == 7 || got == 8));
}
task other_placement(graph::scope& s) {
  auto f = s.tasks<&same>("f", graph::on(s.rank() == s.size() - 1 ? s.size() - 1 : 0));
  f(1).spawn(1);
  const int got = co_await f(1).get();
  CHECK(got == 1);
}
task diverges_alone(graph::scope& s) {
  auto f = s.tasks<&same>("f", graph::on(0));
  const auto first = f(1).spawn(1);
  const auto second = f(1).spawn(2);
  const int got = co_await first.get();
  CHECK(got == 1);
  const auto why = co_await error_of(second.get());
  REQUIRE(why);
  CHECK(why->code() == errc::diverged);
  CHECK(has(why->what(), "f(1)"));
  const graph::report ended = co_await s.fence();
  CHECK(ended.failed == 0);
  CHECK(!ended.divergences.empty());
}
task nothing(graph::scope& s) {
  auto f = s.tasks<&same>("f");
  f(1).spawn(1);
  co_return;
}

/// Its `run` tells of a failure, also where an earlier fence and awaits have.
void fails_in_scope(task (*program)(graph::scope&), errc code) {
  const auto why = error_of_scope({}, program);
  REQUIRE(why);
  CHECK(why->code() == code);
}

/// That all ranks have this error, with these texts.
void check_divergence(const std::optional<graph::error>& why, std::vector<std::string> texts) {
  REQUIRE(why);
  CHECK(why->code() == errc::diverged);
  for (const std::string& each : texts) {
    INFO(why->what());
    CHECK(has(why->what(), each));
  }
}

// ---- taken ----

task two_takers(graph::scope& s) {
  auto source = s.tasks<int>("source", graph::on(0));
  auto f = s.tasks<&same>("f", graph::block_cyclic(s.size(), 1));
  if (source(0).here()) source(0).put(5);
  f(0, 0).spawn(take(source(0)));
  f(1, 0).spawn(take(source(0)));
  int ended = 0;
  int failed = 0;
  for (int i = 0; i < 2; ++i) {
    try {
      const int got = co_await f(i, 0).get();
      CHECK(got == 5);
      ++ended;
    } catch (const graph::error& why) {
      CHECK(why.code() == errc::taken);
      CHECK(has(why.what(), "source(0)"));
      CHECK(has(why.what(), "f(0, 0)"));
      CHECK(has(why.what(), "f(1, 0)"));
      CHECK(has(why.what(), "who_sees_test.cpp:"));
      ++failed;
    }
  }
  CHECK(ended == 1);
  CHECK(failed == 1);
  const graph::report report = co_await s.fence();
  CHECK(report.failed == 1);
  REQUIRE(report.first_failure);
  CHECK(report.first_failure->code == errc::taken);
}

task late_reader(graph::scope& s) {
  auto source = s.tasks<int>("source", graph::on(0));
  auto f = s.tasks<&same>("f", graph::on(0));
  if (source(0).here()) source(0).put(5);
  f(0).spawn(take(source(0)));
  const int got = co_await f(0).get();
  CHECK(got == 5);
  const auto why = co_await error_of(source(0).get());
  REQUIRE(why);
  CHECK(why->code() == errc::taken);
  CHECK(why->root() == "source(0)");
  CHECK(has(why->what(), "f(0)"));
}

task read_and_taken(graph::scope& s) {
  auto f = s.tasks<&same>("f");
  auto g = s.tasks<&plus>("g");
  f(0).spawn(1);
  const auto wrong = g(0).spawn(f(0), take(f(0)));
  const auto why = co_await error_of(wrong.get());
  REQUIRE(why);
  CHECK(why->code() == errc::invalid_argument);
  const auto missing = co_await error_of(g(0).get());
  CHECK((missing && missing->code() == errc::not_spawned));
}

// ---- refused, stale ----

task put_elsewhere(graph::scope& s) {
  auto source = s.tasks<int>("source", graph::on(0));
  source(0).put(4);  // on other ranks this has no effect, and is in the report
  const int got = co_await source(0).get();
  CHECK(got == 4);
  const graph::report ended = co_await s.fence();
  CHECK(ended.refused.size() == static_cast<std::size_t>(s.size() - 1));
  for (const graph::divergence& one : ended.refused) {
    CHECK(one.task == "source(0)");
    CHECK(has(one.text, "only its home, rank 0"));
  }
}

task stale(graph::scope& s) {
  auto f = s.tasks<&same>("f");
  auto g = s.tasks<&plus>("g");
  const auto old = f(0).spawn(1);
  const graph::report first = co_await s.fence();
  CHECK(first.failed == 0);
  const auto why = co_await error_of(old.get());
  REQUIRE(why);
  CHECK(why->code() == errc::stale_name);
  CHECK(has(why->what(), "f(0)"));
  f(0).spawn(2);
  const int fresh = co_await f(0).get();
  CHECK(fresh == 2);
  const auto wrong = co_await error_of(g(0).spawn(f(0), old).get());
  REQUIRE(wrong);
  CHECK(wrong->code() == errc::stale_name);
  const graph::report second = co_await s.fence();
  CHECK(second.refused.size() == static_cast<std::size_t>(s.size()));
}

std::optional<graph::task<int>> left;
task leaves_a_handle(graph::scope& s) {
  auto f = s.tasks<&same>("f");
  left.emplace(f(0).spawn(1));
  co_return;
}

/// No wire format, and no way to copy it.
struct file_handle {
  explicit file_handle(int n) : number(std::make_unique<int>(n)) {}
  file_handle() = default;
  std::unique_ptr<int> number;
};
file_handle open_file(int n) { return file_handle(n); }
int read_file(const file_handle& from) { return *from.number; }
int close_file(file_handle from) { return *from.number + 1; }

task stays_at_home(graph::scope& s) {
  auto file = s.tasks<&open_file>("file", graph::on(0));
  auto read = s.tasks<&read_file>("read", graph::on(0));
  auto close = s.tasks<&close_file>("close", graph::on(0));
  auto elsewhere = s.tasks<&read_file>("elsewhere", graph::on(s.size() - 1));
  file().spawn(4);
  read().spawn(file());
  close().spawn(take(file()), after(read()));
  const int got = co_await close().get();
  CHECK(got == 5);
  if (s.size() == 1) co_return;
  file(1).spawn(5);
  elsewhere().spawn(file(1));
  const auto why = co_await error_of(elsewhere().get());
  REQUIRE(why);
  CHECK(why->code() == errc::not_supported);
  CHECK(has(why->what(), "file(1)"));
  CHECK(has(why->what(), "no wire format"));
  static_cast<void>(co_await s.fence());
}

// ---- cancelled ----

asio::awaitable<int> sleeps(int) {
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::hours(1));
  co_await timer.async_wait(asio::use_awaitable);
  co_return 0;
}

task is_cancelled(graph::scope& s) {
  auto f = s.tasks<&sleeps>("sleeps", graph::block_cyclic(s.size(), 1));
  auto then = s.tasks<&never>("then");
  ran = 0;
  for (int i = 0; i < s.size(); ++i) {
    f(i, 0).spawn(i);
    then(i).spawn(f(i, 0));
  }
  if (s.rank() == s.size() - 1) s.cancel("enough of this");
  const auto why = co_await error_of(then(0).get());
  REQUIRE(why);
  CHECK(why->code() == errc::cancelled);
  CHECK(why->rank() == s.size() - 1);
  CHECK(has(why->what(), "enough of this"));
  CHECK(s.cancelled());
  const auto refused = co_await error_of(then(100).spawn(1).get());
  CHECK((refused && refused->code() == errc::cancelled));
  const auto at_fence = co_await error_of(s.fence());
  REQUIRE(at_fence);
  CHECK(at_fence->code() == errc::cancelled);
  CHECK(has(at_fence->what(), "enough of this"));
  CHECK(ran == 0);
}

task throws_on_one(graph::scope& s) {
  auto f = s.tasks<&same>("f", graph::on(0));
  if (s.rank() == 0) throw std::domain_error("the program of rank 0");
  const int got = co_await f(0).get();  // never spawned
  CHECK(got == 0);
}

task fail_fast(graph::scope& s) {
  auto bad = s.tasks<&fails>("bad", graph::on(0));
  auto waits = s.tasks<&sleeps>("waits", graph::on(s.size() - 1));
  bad(0).spawn(-1);
  waits(0).spawn(1);
  const auto why = co_await error_of(waits(0).get());
  REQUIRE(why);
  CHECK(why->code() == errc::cancelled);
  CHECK(has(why->what(), "bad(0)"));
}

// ---- withdrawn ----

task withdrawn(graph::scope& s, cohort::communicator world) {
  auto source = s.tasks<int>("source", graph::on(0));
  auto f = s.tasks<&same>("f");
  f(0).spawn(source(0));
  if (s.rank() != 0) {
    auto late = cohort::with_deadline(f(0).get(), 1ms);
    const auto why = co_await cohort_test::caught<cohort::deadline_error>(std::move(late));
    CHECK(why);
    auto dropped = f(0).get(cohort::as_future);
    dropped.cancel();
    const auto code = co_await cohort_test::code_of<int>(std::move(dropped));
    CHECK(code == asio::error::operation_aborted);
  }
  co_await meet(world);
  if (s.rank() == 0) source(0).put(3);
  const int got = co_await f(0).get();
  CHECK(got == 3);
}

// ---- windows that do not fit ----

task closes_early(graph::scope& s) {
  if (s.rank() == 0) co_return;
  const auto why = co_await error_of(s.fence());
  REQUIRE(why);
  CHECK(why->code() == errc::closed);
}

}  // namespace

TEST_CASE("a task that throws fails what depends on it, with its facts", "[graph][who_sees]") {
  fails_in_scope(&throwing, errc::task_failed);
  const auto why = error_of_scope({}, &fails_at_the_end);
  REQUIRE(why);
  CHECK(why->code() == errc::task_failed);
  CHECK(why->root() == "bad(1)");
  CHECK(has(why->what(), "std::out_of_range: no negative number"));
}

TEST_CASE("a task that nobody spawns is an error, and may be spawned after that",
          "[graph][who_sees]") {
  fails_in_scope(&not_spawned, errc::not_spawned);
}

TEST_CASE("a cycle is an error at each await in it and behind it", "[graph][who_sees]") {
  fails_in_scope(&cycle, errc::cycle);
}

TEST_CASE("definitions that differ between ranks are named with ranks and sites",
          "[graph][who_sees]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    if (world.size() == 1) co_return;
    const std::string last = std::to_string(world.size() - 1);
    const std::string site = "who_sees_test.cpp:";
    graph::tasks all(world);
    const auto error_in = [&](task (*program)(graph::scope&)) -> asio::awaitable<graph::error> {
      std::optional<graph::error> found;
      auto running = all.run("test", program);
      try {
        co_await std::move(running);
      } catch (const graph::error& why) {
        found = why;
      }
      co_return found ? *found : graph::error(graph::failure());
    };
    auto first = error_in(&other_argument);
    const graph::error argument = co_await std::move(first);
    check_divergence(argument, {"f(1)", "argument values differ", "rank " + last, site});
    auto second = error_in(&other_function);
    const graph::error function = co_await std::move(second);
    check_divergence(function,
                     {"function of the family f", "plus", "difference", "rank 0", "rank " + last});
    auto third = error_in(&other_dependency);
    const graph::error dependency = co_await std::move(third);
    check_divergence(dependency, {"g(1)", "dependencies differ", "f(0)", "f(1)", site});
    auto fourth = error_in(&other_placement);
    const graph::error placement = co_await std::move(fourth);
    check_divergence(placement, {"on(0)", "on(" + last + ")"});
  });
}

TEST_CASE("two definitions on one rank: the second handle ends", "[graph][who_sees]") {
  const auto why = error_of_scope({}, &diverges_alone);
  check_divergence(why, {"f(1)"});
  in_scope(graph::tasks_options{.warn_on_divergence = true}, &diverges_alone);
}

TEST_CASE("options that differ are a divergence", "[graph][who_sees]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    if (world.size() == 1) co_return;
    graph::tasks all(world, {.eager = world.rank() == 0 ? std::size_t{100} : std::size_t{200}});
    auto running = all.run("test", &nothing);
    std::optional<graph::error> found;
    try {
      co_await std::move(running);
    } catch (const graph::error& why) {
      found = why;
    }
    check_divergence(found, {"options of the scope", "eager 100", "eager 200"});
  });
}

TEST_CASE("a second taker and a late reader end with both sites", "[graph][who_sees]") {
  const auto why = error_of_scope({}, &late_reader);
  CHECK_FALSE(why);
  fails_in_scope(&two_takers, errc::taken);
  in_scope(&read_and_taken);
}

TEST_CASE("a put elsewhere and names of an earlier window are refused", "[graph][who_sees]") {
  in_scope(&put_elsewhere);
  in_scope(&stale);
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run("test", &leaves_a_handle);
    co_await std::move(running);
    const auto why = co_await error_of(left->get());
    REQUIRE(why);
    CHECK(why->code() == errc::stale_name);
    left.reset();
  });
}

TEST_CASE("a value without a wire format stays at home", "[graph][who_sees]") {
  static_cast<void>(error_of_scope({}, &stays_at_home));
}

TEST_CASE("a cancellation ends a scope on all ranks, with its first cause", "[graph][who_sees]") {
  const auto why = error_of_scope({}, &is_cancelled);
  REQUIRE(why);
  CHECK(why->code() == errc::cancelled);
  CHECK(has(why->what(), "enough of this"));
  const auto fast = error_of_scope({.fail_fast = true}, &fail_fast);
  REQUIRE(fast);
  CHECK(fast->code() == errc::cancelled);
}

TEST_CASE("what a program throws is thrown there, and cancels the others", "[graph][who_sees]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run("test", &throws_on_one);
    std::string text;
    try {
      co_await std::move(running);
    } catch (const std::domain_error& why) {
      CHECK(world.rank() == 0);
      text = why.what();
    } catch (const graph::error& why) {
      CHECK(world.rank() != 0);
      CHECK(why.code() == errc::cancelled);
      CHECK(why.rank() == 0);
      text = why.what();
    }
    CHECK(has(text, "the program of rank 0"));
  });
}

TEST_CASE("an await that is withdrawn concerns nobody else", "[graph][who_sees]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run("test", &withdrawn, world);
    co_await std::move(running);
  });
}

TEST_CASE("who fences where another closes is told", "[graph][who_sees]") {
  in_scope(&closes_early);
}
