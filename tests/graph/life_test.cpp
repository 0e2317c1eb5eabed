// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// How graphs are taken down: with tasks, awaits and large values under way; and that a rank which
// waits sleeps.
#include <cohort/comm.hpp>
#include <cohort/core/log.hpp>
#include <cohort/graph.hpp>
#include <cohort/progress/future.hpp>

#include <asio/experimental/awaitable_operators.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "graph/ranks_support.hpp"
#include "support/patience.hpp"

namespace {

using namespace graph_test;
using namespace std::chrono_literals;
using cohort_test::meet;
using cohort_test::pause;

/// Says how many of it there are.
struct counted {
  counted() { ++alive; }
  counted(const counted& other) : data(other.data) { ++alive; }
  counted& operator=(const counted&) = default;
  ~counted() { --alive; }
  static inline std::atomic<int> alive{0};
  std::vector<double> data;
};
template <class Archive>
void wire_fields(Archive& archive, counted& one) {
  archive(one.data);
}

counted made(int size) {
  counted one;
  one.data.resize(static_cast<std::size_t>(size), 1.0);
  return one;
}
counted passed_on(counted one) { return one; }
asio::awaitable<counted> kept(counted one) {
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::hours(1));
  co_await timer.async_wait(asio::use_awaitable);
  co_return one;
}

std::atomic<bool> stops{false};
int spins(graph::task_context& context, int) {
  while (!context.cancelled() && !stops.load()) std::this_thread::yield();
  return 1;
}
int spins_unaware(int) {
  while (!stops.load()) std::this_thread::yield();
  return 1;
}

std::atomic<bool> gate_is_open{false};
task opens_gate() {
  gate_is_open = true;
  co_return;
}
bool waits_for_gate() {
  const auto until = std::chrono::steady_clock::now() + cohort_test::patient(10s);
  while (!gate_is_open.load() && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  return gate_is_open;
}

std::vector<asio::steady_timer*> waiting_timers;
int told_of_cancellation = 0;
/// Until its timer is cancelled, or the scope: whether it was that.
asio::awaitable<bool> waits_at_timer(graph::task_context& context, int number) {
  CHECK_FALSE(context.cancelled());
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::hours(1));
  waiting_timers[static_cast<std::size_t>(number)] = &timer;
  std::error_code ended;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ended));
  if (context.cancelled()) ++told_of_cancellation;
  co_return context.cancelled();
}

/// Values small and large between all ranks, coroutines that run, tasks and awaits that wait; then
/// it hangs.
task hangs(graph::scope& s, bool* begun, int large) {
  auto source = s.tasks<&made>("made");
  auto pass = s.tasks<&passed_on>("passed");
  auto keep = s.tasks<&kept>("kept");
  for (int i = 0; i < 12; ++i) {
    source(i).spawn(i % 4 == 0 ? large : i);
    pass(i).spawn(source((i * 7) % 12));
    keep(i).spawn(pass(i));
  }
  co_await pass(3).get();
  *begun = true;
  co_await keep(1).get();
}

}  // namespace

// The others have begun what all must end: it ends in the last looks of this rank.
TEST_CASE("a context that ends before its graphs are open keeps no other rank waiting",
          "[graph][life]") {
  const auto begun = std::chrono::steady_clock::now();
  {
    asio::io_context io;
    const cohort::communicator world(io);
    const graph::tasks all(world);
    if (world.rank() == 0) {
      auto waits = [](asio::steady_timer timer) -> task {
        co_await timer.async_wait(asio::use_awaitable);
      };
      cohort_test::run(io, waits(asio::steady_timer(io, 200ms)));
    }
  }
  CHECK(std::chrono::steady_clock::now() - begun < cohort_test::patient(20s));
}

TEST_CASE("a context ends with a scope open", "[graph][life]") {
  // A message that is too long for MPI to take at once would wait for its receiver as long as the
  // engine lets it: so there are few small values.
  for (const int large : {10, 20000, 0}) {
    const bool at_once = large == 0;
    bool begun = false;
    {
      asio::io_context io;
      cohort::communicator world(io);
      {
        std::optional<graph::tasks> all;
        asio::co_spawn(
            io,
            [&]() -> task {
              all.emplace(world);
              if (at_once) io.stop();
              auto running = all->run("test", &hangs, &begun, large);
              co_await std::move(running);
            },
            asio::detached);
        // The others need this rank's values until they have come so far too.
        asio::co_spawn(
            io,
            [&]() -> task {
              while (!begun) co_await pause(1ms);
              co_await meet(world);
              io.stop();
            },
            asio::detached);
        io.run();
        CHECK(begun != at_once);
        CHECK((at_once || counted::alive > 0));
        // The coroutines above refer to `all`, which goes last: as in a program whose main ends.
        world = cohort::communicator();
        all.reset();
      }
    }
    // MPI may keep large values that nobody has received.
    CHECK((large == 20000 || counted::alive == 0));
    counted::alive = 0;
  }
}

TEST_CASE("graph::tasks goes without a scope, and again", "[graph][life]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    for (int i = 0; i < 5; ++i) {
      const graph::tasks all(world);
      if (i % 2 == 0) co_await meet(world);
    }
  });
}

task does_nothing(graph::scope&) { co_return; }

TEST_CASE("a scope that a rank cannot open any more, because it has left, breaks",
          "[graph][life]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    if (world.size() == 1) co_return;
    const int last = world.size() - 1;
    auto all = std::make_unique<graph::tasks>(world);
    auto first = all->run("first", &does_nothing);
    co_await std::move(first);
    if (world.rank() == last) co_return;
    const auto why = co_await error_of(all->run("late", &does_nothing));
    REQUIRE(why);
    INFO(why->what());
    CHECK(why->code() == errc::peer_lost);
    CHECK(has(why->what(), "it has left"));
  });
}

task waits_after_the_end(graph::scope& s, bool* closed) {
  if (s.rank() == 0) co_return;
  const auto why = co_await error_of(s.fence());
  REQUIRE(why);
  CHECK(why->code() == errc::closed);
  *closed = true;
  co_await pause(1h);
}

TEST_CASE("run is cancelled after the others have closed its scope", "[graph][life]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    bool closed = false;
    using namespace asio::experimental::awaitable_operators;
    const auto ring = [](bool* when) -> task {
      while (!*when) co_await pause(1ms);
    };
    if (world.rank() == 0) {
      auto running = all.run("test", &waits_after_the_end, &closed);
      co_await std::move(running);
    } else {
      auto either = all.run("test", &waits_after_the_end, &closed) || ring(&closed);
      const auto which = co_await std::move(either);
      CHECK(which.index() == 1);
    }
  });
}

TEST_CASE("a deadline of run cancels the scope, which closes on all ranks", "[graph][life]") {
  const cohort::log::capture lines;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    bool begun = false;
    using namespace asio::experimental::awaitable_operators;
    std::optional<graph::error> found;
    if (world.rank() == 0) {
      const auto ring = [](bool* when) -> task {
        while (!*when) co_await pause(1ms);
      };
      auto either = all.run("test", &hangs, &begun, 20000) || ring(&begun);
      const auto which = co_await std::move(either);
      CHECK(which.index() == 1);
    } else {
      auto running = all.run("test", &hangs, &begun, 20000);
      try {
        co_await std::move(running);
      } catch (const graph::error& why) {
        found = why;
      }
      REQUIRE(found);
      CHECK(found->code() == errc::cancelled);
      CHECK(found->rank() == 0);
      CHECK(has(found->what(), "an await of kept(1)"));
    }
    // The same name again: all ranks are out of the first one.
    auto second = all.run("test", [](graph::scope& s) -> task {
      auto source = s.tasks<&made>("made");
      source(1).spawn(3);
      const counted got = co_await source(1).get();
      CHECK(got.data.size() == 3);
    });
    co_await std::move(second);
  });
  CHECK(counted::alive == 0);
  CHECK(lines.contains("the run of 'test' was cancelled; here waited: ") == (rank == 0));
  CHECK(lines.contains("kept(1) of rank ") == (rank == 0));
}

TEST_CASE("a fence that is cancelled cancels the scope", "[graph][life]") {
  const auto why = error_of_scope(
      {}, +[](graph::scope& s) -> task {
        auto keep = s.tasks<&kept>("kept");
        auto source = s.tasks<&made>("made");
        source(0).spawn(10);
        keep(0).spawn(source(0));
        using namespace asio::experimental::awaitable_operators;
        if (s.rank() == 0) {
          auto either = s.fence() || pause(20ms);
          static_cast<void>(co_await std::move(either));
        } else {
          static_cast<void>(co_await s.fence());
        }
      });
  REQUIRE(why);
  CHECK(why->code() == errc::cancelled);
  CHECK(counted::alive == 0);
}

TEST_CASE("values are gone after a fence, and those that were taken before it", "[graph][life]") {
  in_scope(+[](graph::scope& s) -> task {
    auto source = s.tasks<&made>("made");
    auto pass = s.tasks<&passed_on>("passed");
    for (int window = 0; window < 3; ++window) {
      for (int i = 0; i < 20; ++i) {
        source(i).spawn(i % 3 == 0 ? 5000 : 5);
        pass(i).spawn(source(i));
        pass(100 + i).spawn(take(pass(i)));
      }
      co_await pass(100).get();
      CHECK(counted::alive > 0);
      const graph::report ended = co_await s.fence();
      CHECK(ended.failed == 0);
      CHECK(counted::alive == 0);
    }
    // A chain in place has one value at a time on this rank, and what is on its way.
    auto step = s.tasks<&passed_on>("step", graph::on(0));
    if (s.rank() == 0) step(0).put(made(100));
    for (int i = 1; i <= 1000; ++i) step(i).spawn(take(step(i - 1)));
    co_await step(1000).get();
    CHECK(counted::alive <= 3);
  });
}

TEST_CASE("functions on threads end before their scope does", "[graph][life][threads]") {
  const auto options = graph::tasks_options().on_threads(2);
  stops = false;
  const auto why = error_of_scope(
      options, +[](graph::scope& s) -> task {
        auto spin = s.tasks<&spins_unaware>("spin", graph::on(s.size() - 1));
        for (int i = 0; i < 20; ++i) spin(i).spawn(i);
        co_await pause(2ms);
        s.cancel("no time");
        stops = true;
        static_cast<void>(co_await spin(0).get());
      });
  REQUIRE(why);
  CHECK(why->code() == errc::cancelled);
}

TEST_CASE("coroutines begin while functions keep all threads", "[graph][life][threads]") {
  const auto options = graph::tasks_options().on_threads(1);
  gate_is_open = false;
  in_scope(
      options, +[](graph::scope& s) -> task {
        auto open = s.tasks<&opens_gate>("open", graph::block_cyclic(s.size(), 1));
        auto wait = s.tasks<&waits_for_gate>("wait", graph::block_cyclic(s.size(), 1));
        wait(s.rank(), 0).spawn();
        open(s.rank(), 0).spawn();
        for (int i = 1; i < 20; ++i) wait(s.rank(), i).spawn();
        for (int i = 0; i < 20; ++i) {
          const bool opened = co_await wait(s.rank(), i).get();
          CHECK(opened);
        }
      });
}

TEST_CASE("coroutines end in any order, and a cancellation reaches the others", "[graph][life]") {
  waiting_timers.assign(10, nullptr);
  told_of_cancellation = 0;
  const auto why = error_of_scope(
      {}, +[](graph::scope& s) -> task {
        auto f = s.tasks<&waits_at_timer>("f", graph::block_cyclic(s.size(), 1));
        for (int i = 0; i < 10; ++i) f(s.rank(), i).spawn(i);
        while (std::count(waiting_timers.begin(), waiting_timers.end(), nullptr) != 0) {
          co_await pause(1ms);
        }
        for (const int i : {3, 0, 9, 5}) {
          waiting_timers[static_cast<std::size_t>(i)]->cancel();
          const bool was_cancelled = co_await f(s.rank(), i).get();
          CHECK_FALSE(was_cancelled);
        }
        auto never = s.tasks<int>("never", graph::on(0));
        auto done = s.tasks<int>("done", graph::block_cyclic(s.size(), 1));
        done(s.rank()).put(1);
        if (s.rank() == 0) {
          for (int i = 0; i < s.size(); ++i) co_await done(i).get();
          s.cancel("enough");
          CHECK(s.cancelled());
        }
        static_cast<void>(co_await never().get());
      });
  REQUIRE(why);
  CHECK(why->code() == errc::cancelled);
  CHECK(told_of_cancellation == 6);
}

TEST_CASE("a context ends with functions on threads", "[graph][life][threads]") {
  stops = false;
  asio::io_context io;
  cohort::communicator world(io);
  std::optional<graph::tasks> all;
  asio::co_spawn(
      io,
      [&]() -> task {
        all.emplace(world, graph::tasks_options().on_threads(2));
        auto running = all->run("test", [](graph::scope& s) -> task {
          auto spin = s.tasks<&spins_unaware>("spin", graph::block_cyclic(s.size(), 1));
          for (int i = 0; i < 20; ++i) spin(s.rank(), i).spawn(i);
          static_cast<void>(co_await spin(s.rank(), 3).get());
        });
        co_await std::move(running);
      },
      asio::detached);
  asio::co_spawn(
      io,
      [&]() -> task {
        co_await pause(5ms);
        stops = true;
        io.stop();
      },
      asio::detached);
  io.run();
  all.reset();
  CHECK(stops);
}

TEST_CASE("a rank that waits in a scope sleeps, and is woken by its value", "[graph][life]") {
  asio::io_context io;
  cohort::communicator world(io);
  if (world.size() == 1) return;
  cohort_test::run(io, [](asio::io_context& loop, cohort::communicator over) -> task {
    graph::tasks all(over);
    auto running = all.run(
        "test",
        [](graph::scope& s, asio::io_context* own, cohort::communicator with) -> task {
          auto source = s.tasks<int>("source", graph::on(0));
          auto copy = s.tasks<&spins>("unused");
          static_cast<void>(copy);
          if (s.rank() == 0) {
            co_await meet(with);  // all others have been asleep
            source().put(7);
          } else {
            auto value = source().get(cohort::as_future);
            co_await cohort_test::until_it_sleeps(*own);
            co_await meet(with);
            const int got = co_await std::move(value);
            CHECK(got == 7);
          }
        },
        &loop, over);
    co_await std::move(running);
  }(io, world));
}
