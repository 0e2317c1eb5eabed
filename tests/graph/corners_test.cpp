// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What programs rarely do, and orders of events that are rare: each of these has gone wrong once.
#include <cohort/comm.hpp>
#include <cohort/core/log.hpp>
#include <cohort/graph.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>

#include <asio/experimental/awaitable_operators.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "graph/ranks_support.hpp"
#include "support/caught.hpp"

// g++ 12 warns of the frames of coroutines where it inlines their new but not their delete.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace {

using namespace graph_test;

int itself(int value) { return value; }
int total_of(std::span<const int> all) { return std::accumulate(all.begin(), all.end(), 0); }
int total_of_own(std::vector<int> all) { return total_of(all); }

// ---- ranges whose elements are made as they are looked at ----

/// Sums of the numbers 0 to 4 that are read, and taken; one that runs after both; and a sum of
/// tasks that are spawned as it is.
class spawned_ranges {
 public:
  explicit spawned_ranges(graph::scope& s)
      : f(s.tasks<&itself>("f")),
        all(s.tasks<&total_of>("sum")),
        own(s.tasks<&total_of_own>("own")),
        last(s.tasks<&itself>("last")) {
    for (int i = 0; i < 5; ++i) f(i).spawn(i);
    const auto named = std::views::iota(0, 5) | std::views::transform([&](int i) { return f(i); });
    all(0).spawn(named);
    own(0).spawn(take(named), after(all(0)));
    const auto sums = [&](int i) -> graph::task<int> {
      if (i == 0) return all(0);
      return own(0);
    };
    last(0).spawn(7, after(std::views::iota(0, 2) | std::views::transform(sums)));
    const auto spawned = [&](int i) { return f(i).spawn(1); };
    all(1).spawn(std::views::iota(10, 15) | std::views::transform(spawned));
  }
  graph::family<int, &itself> f;
  graph::family<int, &total_of> all;
  graph::family<int, &total_of_own> own;
  graph::family<int, &itself> last;
};

task ranges_of_temporaries(graph::scope& s) {
  const spawned_ranges ranges(s);
  const int read = co_await ranges.all(0).get();
  CHECK(read == 10);
  const int taken = co_await ranges.own(0).get();
  CHECK(taken == 10);
  const int behind = co_await ranges.last(0).get();
  CHECK(behind == 7);
  const int of_spawned = co_await ranges.all(1).get();
  CHECK(of_spawned == 5);
}

// ---- large values ----

std::vector<std::uint8_t> bytes_of(std::size_t size) {
  std::vector<std::uint8_t> all(size);
  for (std::size_t i = 0; i < size; i += 65521) all[i] = static_cast<std::uint8_t>(i % 61);
  return all;
}
std::size_t good_bytes(const std::vector<std::uint8_t>& all) {
  std::size_t good = 0;
  for (std::size_t i = 0; i < all.size(); i += 65521) good += all[i] == i % 61 ? 1 : 0;
  return good;
}
task passes_bytes_on(graph::scope& s, std::size_t size) {
  auto made = s.tasks<&bytes_of>("made", graph::on(0));
  auto read = s.tasks<&good_bytes>("read", graph::on(s.size() - 1));
  made().spawn(size);
  read().spawn(made());
  const std::size_t good = co_await read().get();
  CHECK(good == (size + 65520) / 65521);
}

// ---- long tasks ----

/// What a rank does between its tasks.
struct between_tasks {
  asio::io_context* loop = nullptr;
  int handled = 0;
  std::vector<int> seen;  ///< how much had been handled when each task began
};
between_tasks between;

int long_task(int number) {
  between.seen.push_back(between.handled);
  asio::post(*between.loop, [] { ++between.handled; });
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
  while (std::chrono::steady_clock::now() < end) {
  }
  return number;
}
task runs_long_tasks(graph::scope& s, int short_ones) {
  const auto here = graph::block_cyclic(1, s.size());
  auto quick = s.tasks<&itself>("quick", here);
  auto slow = s.tasks<&long_task>("slow", here);
  for (int i = 0; i < short_ones; ++i) quick(s.rank(), s.rank(), i).spawn(i);
  for (int i = 0; i < 40; ++i) slow(s.rank(), s.rank(), i).spawn(i);
  co_return;
}
/// Several scopes at once.
task runs_in_scopes(cohort::communicator world, int scopes, int short_ones) {
  graph::tasks all(world);
  std::vector<cohort::future<void>> running;
  for (int i = 0; i < scopes; ++i) {
    running.push_back(asio::co_spawn(
        world.get_executor(), all.run("test " + std::to_string(i), &runs_long_tasks, short_ones),
        cohort::as_future));
  }
  co_await cohort::when_all(std::move(running));
}

// ---- values whose fields throw ----

struct fragile {
  int number = 0;
};
template <class Archive>
void wire_fields(Archive& archive, fragile& one) {
  archive(one.number);
  if (one.number < 0) throw std::domain_error("no negative number travels");
}
fragile made_fragile(int number) { return {number}; }
int number_of(const fragile& one) { return one.number; }

task fields_throw(graph::scope& s) {
  auto made = s.tasks<&made_fragile>("made", graph::on(0));
  auto near = s.tasks<&number_of>("near", graph::on(0));
  auto far = s.tasks<&number_of>("far", graph::on(s.size() - 1));
  for (const int i : {-1, 1}) {
    made(i).spawn(i);
    near(i).spawn(made(i));
    far(i).spawn(made(i));
  }
  const int good = co_await far(1).get();
  CHECK(good == 1);
  const int here = co_await near(-1).get();
  CHECK(here == -1);
  if (s.size() == 1) co_return;
  const auto why = co_await error_of(far(-1).get());
  REQUIRE(why);
  CHECK(why->code() == errc::not_supported);
  CHECK(why->root() == "made(-1)");
  CHECK(has(why->what(), "no negative number travels"));
}

// ---- windows ----

task fences_of_an_ended_fork(graph::scope& s) {
  graph::scope other = s.fork();
  other.end();
  auto wrong = other.fence();
  const auto why = co_await cohort_test::caught<cohort::error>(std::move(wrong));
  REQUIRE(why);
  CHECK(why->code() == errc::invalid_argument);
  const graph::report ended = co_await s.fence();
  CHECK(ended.failed == 0);
}

int throws_at_once(int value) {
  if (value < 0) throw std::out_of_range("no negative number");
  return value;
}
task fails_in_the_first_window(graph::scope& s) {
  auto f = s.tasks<&throws_at_once>("f");
  for (int i = 0; i < 3; ++i) f(i).spawn(i == 1 ? -1 : i);
  co_await s.fence();
  f(7).spawn(7);
  co_await s.fence();
}

task diverges_in_the_first_window(graph::scope& s) {
  auto f = s.tasks<&itself>("f", graph::on(0));
  f(1).spawn(1);
  f(1).spawn(2);
  co_await s.fence();
}

/// A fence that is told from outside to give up: the scope is cancelled if that is what it says.
task fences(graph::scope& s, asio::cancellation_signal* stop, bool* over) {
  auto fence = s.fence(asio::bind_cancellation_slot(stop->slot(), asio::use_awaitable));
  bool failed = false;
  try {
    static_cast<void>(co_await std::move(fence));
  } catch (const graph::error& why) {
    CHECK(why.code() == errc::cancelled);
    failed = true;
  }
  CHECK(s.cancelled() == failed);
  *over = true;
}

/// Runs it, and after so many steps of the loop stops the fence, or else the whole: whether there
/// was still something to stop.
bool stopped_after(int steps, bool fence_only) {
  asio::io_context io;
  const cohort::communicator world(io);
  const graph::tasks all(world);
  asio::cancellation_signal stop_fence;
  asio::cancellation_signal stop_all;
  bool fenced = false;
  bool over = false;
  asio::co_spawn(
      io, all.run("test", &fences, &stop_fence, &fenced),
      asio::bind_cancellation_slot(stop_all.slot(), [&](std::exception_ptr) { over = true; }));
  const bool& ended = fence_only ? fenced : over;
  for (int i = 0; i < steps && !ended; ++i) io.poll_one();
  const bool early = !ended;
  if (early) (fence_only ? stop_fence : stop_all).emit(asio::cancellation_type::terminal);
  while (!over) io.run_one();
  return early;
}

// ---- who has spawned what ----

/// Rank 1 agrees with rank 0, which then spawns a task that rank 1 does not, and rank 2 otherwise.
task agreed_before(graph::scope& s) {
  auto a = s.tasks<&itself>("a", graph::on(0));
  auto b = s.tasks<&itself>("b", graph::on(0));
  auto go = s.tasks<int>("go", graph::on(1));
  if (s.rank() != 2) a(0).spawn(1);
  co_await a(0).get();
  if (s.rank() == 1) go(0).put(1);
  co_await go(0).get();
  if (s.rank() == 0) b(0).spawn(5);
  if (s.rank() == 2) b(0).spawn(6);
  const graph::report ended = co_await s.fence();
  REQUIRE(ended.divergences.size() == 1);
  CHECK(has(ended.divergences[0].text, "by rank 0 at "));
  CHECK(has(ended.divergences[0].text, "by rank 2 at "));
}

// ---- reports of what waits ----

/// Each asks for another time: some before the homes can answer, and some when they have.
task asks(graph::scope& s, cohort::communicator world) {
  auto source = s.tasks<int>("source", graph::on(s.size() - 1));
  auto f = s.tasks<&itself>("f", graph::on(0));
  f(0).spawn(source(0));
  const graph::scope other = s.fork();  // which waits; the one that puts must not
  auto waits = other.tasks<&itself>("f", graph::on(0))(0).get(cohort::as_future);
  for (int i = 0; i < 300; ++i) {
    auto report = s.report(std::chrono::nanoseconds(i % 50 * 100));
    const graph::stall_report told = co_await std::move(report);
    CHECK(told.silent.size() <= 1);
  }
  using namespace asio::experimental::awaitable_operators;
  auto both = s.report(std::chrono::hours(1)) && s.report(std::chrono::nanoseconds(1));
  const auto [patient, hasty] = co_await std::move(both);
  CHECK(patient.silent.empty());
  CHECK(hasty.tasks.size() == patient.tasks.size());
  co_await cohort_test::meet(world);
  if (source(0).here()) source(0).put(3);
  const int got = co_await std::move(waits);
  CHECK(got == 3);
}

}  // namespace

TEST_CASE("the tasks of a range may be named, and spawned, as it is looked at",
          "[graph][corners]") {
  in_scope(&ranges_of_temporaries);
}

TEST_CASE("a large value is offered and arrives", "[graph][corners]") {
  in_scope(&passes_bytes_on, std::size_t{1} << 20);
}
// Needs up to 5 GB per rank.
TEST_CASE("a value may have more than 2 GiB", "[.][large]") {
  in_scope(&passes_bytes_on, (std::size_t{1} << 31) + 4099);
}

TEST_CASE("the loop has its turn after each long task", "[graph][corners]") {
  for (const int scopes : {1, 3}) {
    for (const int short_ones : {0, 2000}) {
      between = between_tasks();
      asio::io_context io;
      between.loop = &io;
      cohort_test::run(io, runs_in_scopes(cohort::communicator(io), scopes, short_ones));
      CAPTURE(scopes, short_ones);
      REQUIRE(between.seen.size() == static_cast<std::size_t>(40 * scopes));
      // The first of them may come behind short ones in one slice, the last behind those of others.
      int behind = 0;
      for (std::size_t i = 0; i < between.seen.size(); ++i) {
        if (between.seen[i] != static_cast<int>(i)) ++behind;
      }
      CHECK(behind <= (short_ones == 0 ? scopes - 1 : 16));
    }
  }
}

TEST_CASE("a value whose fields throw stays at home, and its readers elsewhere fail",
          "[graph][corners]") {
  const auto why = error_of_scope({}, &fields_throw);
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(why.has_value() == (size > 1));
}

TEST_CASE("a fence that does not begin leaves nothing behind", "[graph][corners]") {
  in_scope(&fences_of_an_ended_fork);
}

TEST_CASE("a fence, and a close, are cancelled after each step of the loop", "[graph][corners]") {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size > 1) return;
  for (const bool fence_only : {true, false}) {
    int steps = 0;
    while (stopped_after(steps, fence_only)) ++steps;
    CHECK(steps > 2);
  }
}

TEST_CASE("a failure in any window is thrown at the end", "[graph][corners]") {
  const auto why = error_of_scope({}, &fails_in_the_first_window);
  REQUIRE(why);
  CHECK(why->code() == errc::task_failed);
  CHECK(why->root() == "f(1)");
  CHECK(has(why->what(), "no negative number"));
}

TEST_CASE("a divergence that run does not throw for is logged", "[graph][corners]") {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const cohort::log::capture lines;
  in_scope({.warn_on_divergence = true}, &diverges_in_the_first_window);
  CHECK(lines.contains("f(1) is spawned twice on rank 0") == (rank == 0));
}

TEST_CASE("who asks for a short time ends no other report", "[graph][corners]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run("test", &asks, world);
    co_await std::move(running);
  });
}

TEST_CASE("who agreed once has not spawned what came later", "[graph][corners]") {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 3) return;
  const auto why = error_of_scope({}, &agreed_before);
  REQUIRE(why);
  CHECK(why->code() == errc::diverged);
}
