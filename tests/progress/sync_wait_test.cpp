// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Code that is no coroutine waits for one.

#include <cohort/progress.hpp>
#include <cohort/testing.hpp>

#include <asio/thread_pool.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace sync_wait_test {

using namespace std::chrono_literals;
using cohort::as_future;
using cohort::sync_wait;
using cohort::testing::manual_source;
using task = asio::awaitable<void>;

/// Ends after a turn of the loop at least.
asio::awaitable<std::unique_ptr<int>> later(int value) {
  co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
  if (value < 0) throw std::runtime_error("negative");
  co_return std::make_unique<int>(value);
}
/// Ends without a turn.
asio::awaitable<int> at_once(int value) {
  if (value < 0) throw std::runtime_error("negative");
  co_return value;
}
/// Ends on a thread of `pool`.
asio::awaitable<std::thread::id> elsewhere(asio::thread_pool& pool) {
  co_await asio::post(pool, asio::bind_executor(pool.get_executor(), asio::use_awaitable));
  co_return std::this_thread::get_id();
}
task nap(std::chrono::microseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}

template <class Call>
std::error_code code_of(Call call) {
  try {
    call();
  } catch (const std::system_error& why) {
    return why.code();
  }
  return {};
}

/// Starts an operation, completes it from a timer, and awaits it.
task completed_later(manual_source& source, int id) {
  auto pending = source.start(id, as_future);
  co_await nap(50us);
  source.complete(id);
  co_await std::move(pending);
}

}  // namespace sync_wait_test

TEST_CASE("sync_wait returns what the coroutine returns, as often as it is called") {
  using namespace sync_wait_test;
  asio::io_context io;
  for (int i = 0; i < 100; ++i) {
    const auto got = sync_wait(io, later(i));
    CHECK(*got == i);
  }
  sync_wait(io, nap(10us));
  CHECK_THROWS_AS(sync_wait(io, later(-1)), std::runtime_error);
  CHECK(*sync_wait(io, later(7)) == 7);
}

TEST_CASE("sync_wait takes a coroutine that ends at once, or on another thread") {
  using namespace sync_wait_test;
  asio::io_context io;
  asio::thread_pool pool(1);
  for (int i = 0; i < 100; ++i) {
    CHECK(sync_wait(io, at_once(i)) == i);
    CHECK_THROWS_AS(sync_wait(io, at_once(-1)), std::runtime_error);
    CHECK(sync_wait(io, elsewhere(pool)) != std::this_thread::get_id());
  }
  pool.join();
  cohort::progress_thread runs;
  for (int i = 0; i < 100; ++i) {
    CHECK(sync_wait(runs.context(), at_once(i)) == i);
    CHECK_THROWS_AS(sync_wait(runs.context(), at_once(-1)), std::runtime_error);
  }
}

TEST_CASE("sync_wait takes a future, and leaves alone what else is pending") {
  using namespace sync_wait_test;
  asio::io_context io;
  manual_source source(io);
  auto first = source.start(1, as_future);
  auto second = source.start(2, as_future);
  auto third = source.start(3, as_future);
  source.complete(1);
  sync_wait(io, std::move(first));
  CHECK_FALSE(second.is_ready());
  source.complete(3);
  sync_wait(io, completed_later(source, 4));
  CHECK(third.is_ready());
  sync_wait(io, std::move(third));
  source.complete(2, std::make_error_code(std::errc::io_error));
  CHECK_THROWS_AS(sync_wait(io, std::move(second)), std::system_error);
  CHECK(source.pending() == 0);
}

TEST_CASE("sync_wait inside a handler of its loop is an error, and not a deadlock") {
  using namespace sync_wait_test;
  asio::io_context io;
  std::error_code end;
  const auto inside = [&]() -> task {
    try {
      sync_wait(io, nap(1us));
    } catch (const std::system_error& why) {
      end = why.code();
    }
    co_return;
  };
  sync_wait(io, inside());
  CHECK(end == std::errc::resource_deadlock_would_occur);

  asio::io_context other;  // whose loop may run here meanwhile
  const auto in_another = [&]() -> asio::awaitable<int> { co_return *sync_wait(other, later(5)); };
  CHECK(sync_wait(io, in_another()) == 5);
}

TEST_CASE("a context that is stopped ends sync_wait, and the next one goes on") {
  using namespace sync_wait_test;
  asio::io_context io;
  manual_source source(io);
  auto pending = source.start(1, as_future);
  const auto stops = [&]() -> task {
    co_await nap(10us);
    io.stop();
    co_await std::move(pending);
  };
  std::error_code end;
  try {
    sync_wait(io, stops());
  } catch (const std::system_error& why) {
    end = why.code();
  }
  CHECK(end == cohort::errc::engine_stopped);
  source.complete(1);
  CHECK(*sync_wait(io, later(3)) == 3);
}

TEST_CASE("what another handler throws comes out of sync_wait") {
  using namespace sync_wait_test;
  asio::io_context io;
  asio::post(io, [] { throw std::logic_error("of another"); });
  CHECK_THROWS_AS(sync_wait(io, nap(1h)), std::logic_error);
  CHECK(*sync_wait(io, later(3)) == 3);
}

TEST_CASE("where a thread of the library runs the loop, sync_wait sleeps") {
  using namespace sync_wait_test;
  cohort::progress_thread thread;
  manual_source source(thread.context());
  for (int i = 0; i < 100; ++i) {
    std::thread::id where;
    const auto note = [&]() -> task {
      co_await completed_later(source, 1);
      where = std::this_thread::get_id();
    };
    sync_wait(thread.context(), note());
    CHECK(where != std::this_thread::get_id());
  }
  thread.join();
  CHECK(*sync_wait(thread.context(), later(1)) == 1);
}

TEST_CASE("several threads wait in one loop") {
  using namespace sync_wait_test;
  asio::io_context io;
  manual_source source(io);
  std::atomic<int> done = 0;
  std::vector<std::thread> waiting;
  for (int t = 0; t < 3; ++t) {
    waiting.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) {
        sync_wait(io, completed_later(source, t));
        done += *sync_wait(io, later(1));
      }
    });
  }
  for (std::thread& each : waiting) each.join();
  CHECK(done == 90);
}

TEST_CASE("beside a thread of the program's own that runs the loop nobody waits") {
  using namespace sync_wait_test;
  asio::io_context io;
  manual_source source(io);
  std::atomic<bool> laps = false;
  auto pending = source.start(1, as_future);  // so that it has something to look for
  asio::co_spawn(io, nap(1us), [&](const std::exception_ptr&) { laps = true; });
  std::thread runs([&] { io.run(); });
  while (!laps || cohort::engine_stats(io).laps == 0) std::this_thread::yield();
  CHECK(code_of([&] { sync_wait(io, nap(1us)); }) == cohort::errc::wrong_thread);
  CHECK(code_of([&] { source.start(2, cohort::blocking); }) == cohort::errc::wrong_thread);
  source.complete(1);
  runs.join();
  pending.get();
  CHECK(*sync_wait(io, later(1)) == 1);
}

TEST_CASE("blocking returns what the operation ends with") {
  using namespace sync_wait_test;
  asio::io_context io;
  manual_source source(io);
  const auto ends = [&](int id, std::error_code with) -> task {
    co_await nap(20us);
    source.complete(id, with);
  };
  asio::co_spawn(io, ends(1, {}), asio::detached);
  source.start(1, cohort::blocking);
  asio::co_spawn(io, ends(2, std::make_error_code(std::errc::io_error)), asio::detached);
  CHECK(code_of([&] { source.start(2, cohort::blocking); }) == std::errc::io_error);
  asio::co_spawn(io, ends(3, std::make_error_code(std::errc::io_error)), asio::detached);
  const auto [code] = source.start(3, cohort::as_tuple(cohort::blocking));
  CHECK(code == std::errc::io_error);
  CHECK(source.pending() == 0);
}

TEST_CASE("blocking inside a handler of its loop is an error, and nothing is started") {
  using namespace sync_wait_test;
  asio::io_context io;
  manual_source source(io);
  std::error_code in_coroutine;
  std::error_code in_delivery;
  const auto inside = [&]() -> task {
    in_coroutine = code_of([&] { source.start(1, cohort::blocking); });
    auto pending = source.start(2, as_future);
    source.complete(2);
    co_await std::move(pending);
    in_delivery = code_of([&] { source.start(3, cohort::blocking); });
  };
  sync_wait(io, inside());
  CHECK(in_coroutine == std::errc::resource_deadlock_would_occur);
  CHECK(in_delivery == std::errc::resource_deadlock_would_occur);
  CHECK(source.pending() == 0);
}

TEST_CASE("where a thread of the library runs the loop, blocking sleeps") {
  using namespace sync_wait_test;
  cohort::progress_thread thread;
  manual_source source(thread.context());
  const auto ends = [&](int id) -> task {
    while (!source.complete(id)) co_await nap(20us);  // once it has been started
  };
  for (int i = 0; i < 100; ++i) {
    asio::co_spawn(thread.context(), ends(i), asio::detached);
    source.start(i, cohort::blocking);
  }
  CHECK(source.pending() == 0);
}

TEST_CASE("a handler that is called while a thread waits may not wait for the same loop") {
  using namespace sync_wait_test;
  asio::io_context io;
  asio::io_context other;
  manual_source source(io);
  manual_source elsewhere(other);
  std::vector<std::error_code> ends;
  // Both are delivered by the thread that waits, without a turn of the loop.
  source.start(1, [&](std::error_code) {
    auto pending = source.start(3, as_future);
    ends.push_back(code_of([&] { pending.get(); }));
    source.complete(3);
    elsewhere.start(4, [&](std::error_code) {
      ends.push_back(code_of([&] { source.start(5, cohort::blocking); }));
      elsewhere.complete(6);
    });
    elsewhere.complete(4);
    elsewhere.start(6, cohort::blocking);
    source.complete(2);
  });
  source.complete(1);
  source.start(2, cohort::blocking);
  REQUIRE(ends.size() == 2);
  CHECK(ends[0] == std::errc::resource_deadlock_would_occur);
  CHECK(ends[1] == std::errc::resource_deadlock_would_occur);
}

TEST_CASE("a thread stands in for the loop's own one once that has gone") {
  using namespace sync_wait_test;
  cohort::progress_thread thread;
  manual_source source(thread.context());
  thread.context().stop();
  const auto ends = [&]() -> task {
    while (!source.complete(1)) co_await nap(20us);
  };
  asio::co_spawn(thread.context(), ends(), asio::detached);
  source.start(1, cohort::blocking);
  CHECK(*sync_wait(thread.context(), later(3)) == 3);
}

TEST_CASE("operations of Asio block, and those of another loop are refused") {
  using namespace sync_wait_test;
  asio::io_context io;
  asio::steady_timer timer(io, 20us);
  timer.async_wait(cohort::blocking);
  CHECK(asio::co_spawn(io, later(4), cohort::blocking) != nullptr);

  asio::io_context other;
  manual_source source(other);
  auto pending = source.start(1, as_future);
  CHECK(code_of([&] { sync_wait(io, std::move(pending)); }) == cohort::errc::invalid_argument);
  source.complete(1);
  sync_wait(other, std::move(pending));
}

TEST_CASE("what a handler throws comes out of a blocking call once that is over") {
  using namespace sync_wait_test;
  asio::io_context io;
  manual_source source(io);
  asio::post(io, [] { throw std::logic_error("of another"); });
  const auto ends = [&]() -> task {
    co_await nap(200us);
    source.complete(1);
  };
  asio::co_spawn(io, ends(), asio::detached);
  CHECK_THROWS_AS(source.start(1, cohort::blocking), std::logic_error);
  CHECK(source.pending() == 0);
}
