// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Several threads: who starts, who runs the loop, who waits. Runs under the thread sanitizer.

#include <cohort/core/log.hpp>
#include <cohort/progress.hpp>
#include <cohort/progress/doorbell.hpp>
#include <cohort/testing.hpp>

#include <asio/strand.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/patience.hpp"
#include "support/run.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::testing::manual_kind;
using cohort::testing::manual_source;
using task = asio::awaitable<void>;

/// Until a thread has said that nobody runs its loop.
void wait_for_line(const cohort::log::capture& log) {
  const auto limit = std::chrono::steady_clock::now() + cohort_test::patient(30s);
  while (!log.contains("cohort::sync_wait") && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK(log.contains("cohort::sync_wait"));
}

}  // namespace

TEST_CASE("any thread may start and end operations while one runs the loop") {
  asio::io_context io;
  manual_source source(io);
  auto work = asio::make_work_guard(io);
  std::thread loop([&] { io.run(); });
  constexpr int threads = 3;
  constexpr int each = 500;
  std::atomic<int> done = 0;
  std::vector<std::thread> starters;
  for (int t = 0; t < threads; ++t) {
    starters.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) {
        const int id = t * each + i;
        source.start(id, [&](std::error_code) { ++done; });
        source.complete(id);
      }
    });
  }
  for (auto& starter : starters) starter.join();
  work.reset();
  loop.join();
  CHECK(done == threads * each);
  CHECK(cohort::engine_stats(io).completions == threads * each);
}

TEST_CASE("several threads may run one context") {
  asio::io_context io;
  manual_source source(io);
  std::atomic<int> done = 0;
  const auto chain = [&](int id) -> task {
    for (int i = 0; i < 300; ++i) {
      auto next = source.start(id, cohort::as_future);
      source.complete(id);
      co_await std::move(next);
      ++done;
    }
  };
  for (int id = 0; id < 6; ++id) asio::co_spawn(asio::make_strand(io), chain(id), asio::detached);
  std::vector<std::thread> runners;
  for (int t = 0; t < 3; ++t) runners.emplace_back([&] { io.run(); });
  for (auto& runner : runners) runner.join();
  CHECK(done == 6 * 300);
}

TEST_CASE("get() blocks a plain thread until the loop has delivered") {
  cohort::progress_thread thread;
  manual_source source(thread.context());
  cohort::future<> good = source.start(1, cohort::as_future);
  cohort::future<> bad = source.start(2, cohort::as_future);
  std::future<void> standard = source.start(3, asio::use_future);
  std::thread ends([&] {
    std::this_thread::sleep_for(3ms);
    source.complete(1);
    source.complete(2, std::make_error_code(std::errc::io_error));
    source.complete(3);
  });
  good.get();
  CHECK_THROWS_AS(bad.get(), std::system_error);
  standard.get();
  ends.join();
}

TEST_CASE("get() says once that nobody runs the loop, and waits on") {
  asio::io_context io;
  manual_source source(io);
  cohort::progress_thread running;
  manual_source looked_at(running.context());
  const cohort::log::capture log;
  auto waited = source.start(1, cohort::as_future);
  auto beside = looked_at.start(2, cohort::as_future);
  std::thread by_a_loop([&] { beside.get(); });
  std::thread waits([&] { waited.get(); });
  wait_for_line(log);
  looked_at.complete(2);
  by_a_loop.join();
  source.complete(1);
  io.run();
  waits.join();
  const std::string text = log.text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("nobody ran the loop"));
}

TEST_CASE("a thread that sleeps in get() is told when the context goes") {
  std::optional<asio::io_context> io(std::in_place);
  manual_source source(*io);
  const cohort::log::capture log;
  auto pending = source.start(1, cohort::as_future);
  std::error_code end;
  std::thread waits([&] {
    try {
      pending.get();
    } catch (const std::system_error& why) {
      end = why.code();
    }
  });
  wait_for_line(log);  // it sleeps by now
  cohort::use_engine(*io, {.drain = 0ms});
  io.reset();
  waits.join();
  CHECK((end == cohort::errc::engine_stopped || end == asio::error::operation_aborted));
}

TEST_CASE("when_any takes futures that several threads end") {
  cohort::progress_thread elsewhere;
  cohort::progress_thread third;
  asio::io_context io;
  manual_source here(io);
  manual_source there(elsewhere.context());
  manual_source beyond(third.context());
  int results = 0;
  const auto work = [&]() -> task {
    for (int i = 0; i < 300; ++i) {
      std::vector<cohort::future<>> all;
      for (int id = 0; id < 3; ++id) {
        for (auto* source : {&here, &there, &beyond}) {
          all.push_back(source->start(id, cohort::as_future));
        }
      }
      std::thread ends([&] {
        for (const int id : {2, 0, 1}) {
          for (auto* source : {&beyond, &there, &here}) source->complete(id);
        }
      });
      for (std::size_t left = all.size(); left != 0; --left) {
        const std::size_t i_th = co_await cohort::when_any(all);
        co_await std::move(all[i_th]);
        ++results;
      }
      ends.join();
    }
  };
  cohort_test::run(io, work());
  elsewhere.join();  // they have posted into the loop that goes first
  third.join();
  CHECK(results == 300 * 9);
}

TEST_CASE("when_any is cancelled while another thread ends what it waits for") {
  cohort::progress_thread elsewhere;
  asio::io_context io;
  manual_source source(elsewhere.context());
  int stopped = 0;
  int results = 0;
  const auto once = [&](std::vector<cohort::future<>>& all) -> task {
    co_await cohort::when_any(all);
    ++results;
  };
  const auto work = [&]() -> task {
    for (int i = 0; i < 300; ++i) {
      std::vector<cohort::future<>> all;
      for (int id = 0; id < 4; ++id) all.push_back(source.start(id, cohort::as_future));
      std::thread ends([&] { source.complete(1); });
      asio::cancellation_signal stop;
      auto waiting = asio::co_spawn(io, once(all),
                                    asio::bind_cancellation_slot(stop.slot(), cohort::as_future));
      asio::post(io, [&] { stop.emit(asio::cancellation_type::terminal); });
      const auto code = co_await cohort_test::code_of(std::move(waiting));
      if (code) ++stopped;
      ends.join();
      for (const int id : {0, 2, 3}) source.complete(id);
      co_await cohort::when_all(std::move(all));  // none is lost
    }
  };
  cohort_test::run(io, work());
  elsewhere.join();  // it has posted into the loop that goes first
  CHECK(stopped + results == 300);
  CHECK(source.pending() == 0);
}

TEST_CASE("a future is dropped on another thread than the loop's") {
  cohort::progress_thread thread;
  manual_source source(thread.context());
  for (int i = 0; i < 50; ++i) {
    static_cast<void>(source.start(1, cohort::as_future));  // a receive: given up
    const cohort::future<> borrowed = source.start(2, manual_kind::borrowed, cohort::as_future);
    source.complete(2);
  }
  thread.join();
  CHECK(source.pending() == 0);
}

TEST_CASE("a future of a coroutine is cancelled on another thread than the coroutine's") {
  cohort::progress_thread thread;
  const auto naps = []() -> task {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (;;) {
      timer.expires_after(1us);
      co_await timer.async_wait(asio::use_awaitable);
    }
  };
  for (int i = 0; i < 200; ++i) {
    cohort::future<> f = asio::co_spawn(thread.context(), naps(), cohort::as_future);
    if (i % 2 == 0) std::this_thread::sleep_for(100us);
    f.cancel();
    f.cancel();
    CHECK_THROWS_AS(f.get(), std::system_error);
  }
}

TEST_CASE("a sleeping loop is woken by an operation that another thread starts or ends") {
  cohort::progress_thread thread;
  cohort::use_engine(thread.context(),
                     {.spin = 0us, .first_nap = 1h, .nap = 1h, .long_nap = 1h, .longest_nap = 1h});
  manual_source source(thread.context());
  for (int i = 0; i < 20; ++i) {
    cohort::future<> f = source.start(1, cohort::as_future);
    std::this_thread::sleep_for(1ms);  // it naps by now
    source.complete(1);
    f.get();
  }
  SUCCEED("none of them was forgotten");
}

TEST_CASE("another thread may look while the loop laps") {
  cohort::progress_thread thread;
  manual_source source(thread.context());
  auto& engine = cohort::use_engine(thread.context());
  std::atomic<bool> stop = false;
  std::thread looker([&] {
    while (!stop) engine.look();
  });
  for (int i = 0; i < 300; ++i) {
    cohort::future<> f = source.start(1, cohort::as_future);
    source.complete(1);
    f.get();
  }
  stop = true;
  looker.join();
  CHECK(source.pending() == 0);
}

TEST_CASE("another thread may make communicators, which tell how many ranks share the node") {
  cohort::progress_thread loop;
  manual_source source(loop.context());
  auto pending = source.start(1, cohort::as_future);
  for (int n = 0; n < 100; ++n) {
    cohort::use_engine(loop.context()).set_oversubscribed(n % 2 == 0);
    std::this_thread::yield();
  }
  source.complete(1);
  pending.get();
}

TEST_CASE("a progress thread finishes what is in flight before it is joined") {
  std::atomic<int> done = 0;
  {
    cohort::progress_thread thread;
    manual_source source(thread.context());
    for (int i = 0; i < 10; ++i) source.start(i, [&](std::error_code) { ++done; });
    for (int i = 0; i < 10; ++i) source.complete(i);
    thread.join();
    CHECK(done == 10);
  }
  CHECK(done == 10);
}

TEST_CASE("a handler on another context is called by that context's thread") {
  asio::io_context io;
  cohort::progress_thread other;
  manual_source source(io);
  std::atomic<bool> elsewhere = false;
  const auto here = std::this_thread::get_id();
  source.start(1, asio::bind_executor(other.get_executor(), [&](std::error_code) {
                 elsewhere = std::this_thread::get_id() != here;
               }));
  source.complete(1);
  io.run();
  other.join();
  CHECK(elsewhere);
}

TEST_CASE("blocks of the pool may be given back by another thread than took them") {
  using cohort::progress::pool;
  std::vector<void*> blocks;
  for (int i = 0; i < 200; ++i) blocks.push_back(pool::allocate(200));
  std::thread([&] {
    for (void* block : blocks) pool::deallocate(block, 200);
    void* mine = pool::allocate(200);
    pool::deallocate(mine, 200);
  }).join();
  pool::deallocate(pool::allocate(200), 200);
  SUCCEED("the sanitizers look for leaks and races");
}

// Laps arm the bell one after the other; a ring, or a stranger's datagram, is a handler that may
// run beside a lap on another thread.
TEST_CASE("a doorbell is rung while several threads run the loop") {
  asio::io_context io;
  auto& engine = cohort::use_engine(io);
  {
    cohort::progress::doorbell bell(engine);
    cohort::progress::bell_address stranger = bell.address();
    ++stranger.token;
    auto lap = asio::make_strand(io);
    auto work = asio::make_work_guard(io);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back([&] { io.run(); });
    std::atomic<int> armed = 0;
    constexpr int times = 2000;
    for (int i = 0; i < times; ++i) {
      asio::post(lap, [&] {
        bell.arm();
        ++armed;
      });
      bell.ring(i % 2 == 0 ? bell.address() : stranger, true);
    }
    const auto laps_made = [&] { return cohort::engine_stats(io).laps; };
    while (armed != times) std::this_thread::yield();
    CHECK(cohort::engine_stats(io).rings == std::uint64_t{times});
    const auto before = laps_made();
    const auto limit = std::chrono::steady_clock::now() + cohort_test::patient(10s);
    asio::post(lap, [&] { bell.arm(); });
    while (laps_made() == before && std::chrono::steady_clock::now() < limit) {
      bell.ring(bell.address(), true);
      std::this_thread::sleep_for(1ms);
    }
    CHECK(laps_made() != before);
    work.reset();
    io.stop();
    for (auto& each : threads) each.join();
  }
}
