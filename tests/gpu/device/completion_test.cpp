// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// `co_await device::done(stream)`: what the engine polls, and how a wait ends.
#include "gpu/device/support.hpp"
#include "support/run.hpp"

#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>
#include <cohort/testing/manual_source.hpp>

#include <asio/bind_executor.hpp>
#include <asio/strand.hpp>
#include <asio/thread_pool.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>

using namespace cohort_test;
using namespace std::chrono_literals;
using cohort::errc;

namespace {

asio::awaitable<void> copy_and_wait(const device::stream& on, device::vector<int>& values,
                                    const device::pinned_vector<int>& out,
                                    device::pinned_vector<int>& in) {
  device::copy(on, out, values);
  device::copy(on, values, in);
  co_await device::done(on);
}

/// Lets the loop turn until `done`, whatever it waits for.
template <class Predicate>
void turn_until(asio::io_context& io, Predicate done) {
  while (!done()) {
    io.run_one_for(1ms);
    io.restart();  // it has stopped if nothing else was left to do
  }
}

}  // namespace

TEST_CASE("a coroutine waits for a stream") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream on(0);
  device::vector<int> values(1000, on);
  const auto out = counted<int>(1000, on, 1);
  device::pinned_vector<int> in(1000, on);
  run(io, copy_and_wait(on, values, out, in));
  CHECK(in[999] == 1000);
  run(io, []() -> asio::awaitable<void> {  // nothing is queued
    co_await device::done(device::stream(0));
  }());
}

TEST_CASE("the loop turns while a stream is waited for") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream on(0);
  gate closed(on);
  int turns = 0;
  bool done = false;
  device::done(io, on, [&](std::error_code error) {
    CHECK_FALSE(error);
    done = true;
  });
  asio::steady_timer timer(io);
  for (; turns < 5; ++turns) {
    CHECK_FALSE(done);
    timer.expires_after(1ms);
    bool rung = false;
    timer.async_wait([&](std::error_code) { rung = true; });
    turn_until(io, [&] { return rung; });
  }
  closed.open();
  turn_until(io, [&] { return done; });
  CHECK(io.run() == 0);  // nothing is left that keeps the loop
}

TEST_CASE("other sources of the engine are served while a stream is waited for") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  cohort::testing::manual_source source(io);
  const device::stream on(0);
  gate closed(on);
  std::vector<int> ended;
  device::done(io, on, [&](std::error_code) { ended.push_back(0); });
  source.start(1, [&](std::error_code) { ended.push_back(1); });
  source.complete(1);
  turn_until(io, [&] { return !ended.empty(); });
  CHECK(ended == std::vector<int>{1});
  closed.open();
  io.run();
  CHECK(ended == std::vector<int>{1, 0});
}

TEST_CASE("waits for several streams end in the order of each stream") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream first(0);
  const device::stream second(0);
  std::vector<int> ended;
  const auto note = [&](int what) {
    return [&ended, what](std::error_code error) {
      CHECK_FALSE(error);
      ended.push_back(what);
    };
  };
  {
    gate closed(first);
    device::done(io, first, note(1));
    device::done(io, first, note(2));
    device::done(io, second, note(3));
    turn_until(io, [&] { return !ended.empty(); });
    CHECK(ended == std::vector<int>{3});
    closed.open();
  }
  io.run();
  CHECK(ended == std::vector<int>{3, 1, 2});
}

TEST_CASE("done takes every kind of token") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream on(0);
  SECTION("futures, together") {
    run(io, [](asio::io_context& loop, device::stream stream) -> asio::awaitable<void> {
      std::vector<cohort::future<>> all;
      for (int i = 0; i < 3; ++i) all.push_back(device::done(loop, stream, cohort::as_future));
      co_await cohort::when_all(std::move(all));
    }(io, on));
  }
  SECTION("as_tuple") {
    run(io, [](device::stream stream) -> asio::awaitable<void> {
      const auto [error] = co_await device::done(stream, cohort::as_tuple);
      CHECK_FALSE(error);
    }(on));
  }
  SECTION("a future of another thread") {
    auto future = device::done(io, on, cohort::as_future);
    std::thread waiter([&] { CHECK_NOTHROW(future.get()); });
    io.run();
    waiter.join();
  }
  SECTION("a strand's coroutine") {
    asio::strand<asio::io_context::executor_type> strand(io.get_executor());
    std::exception_ptr failed;
    bool there = false;
    asio::co_spawn(
        strand,
        [&]() -> asio::awaitable<void> {
          co_await device::done(on);
          there = strand.running_in_this_thread();
        },
        [&](std::exception_ptr error) { failed = error; });
    io.run();
    CHECK_FALSE(failed);
    CHECK(there);
  }
  SECTION("deferred") {
    std::optional<std::error_code> result;
    device::done(io, on, cohort::deferred)([&](std::error_code error) { result = error; });
    io.run();
    CHECK(result == std::error_code());
  }
  SECTION("but not one that belongs to no loop") {
    asio::thread_pool pool(1);
    const asio::any_io_executor hidden(pool.get_executor());
    std::promise<std::error_code> result;
    device::done(
        on, asio::bind_executor(hidden, [&](std::error_code error) { result.set_value(error); }));
    CHECK(result.get_future().get() == errc::invalid_argument);
  }
}

TEST_CASE("a wait is given up, and the work goes on") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream on(0);
  device::vector<int> values(10, on);
  const auto out = counted<int>(10, on, 1);
  device::pinned_vector<int> in(10, on);
  gate closed(on);
  device::copy(on, out, values);
  device::copy(on, values, in);
  SECTION("by a cancelled future") {
    auto gone = device::done(io, on, cohort::as_future);
    auto kept = device::done(io, on, cohort::as_future);
    gone.cancel();
    turn_until(io, [&] { return gone.is_ready(); });
    CHECK_FALSE(kept.is_ready());
    const auto code =
        run(io, [](cohort::future<> f, gate& held) -> asio::awaitable<std::error_code> {
          const auto error = co_await code_of(static_cast<asio::awaitable<void>&&>(f));
          held.open();
          co_return error;
        }(std::move(gone), closed));
    CHECK(code == asio::error::operation_aborted);
    run(io, static_cast<asio::awaitable<void>&&>(kept));
  }
  SECTION("by the last of three, the first, and the one between") {
    std::vector<cohort::future<>> all;
    for (int i = 0; i < 3; ++i) all.push_back(device::done(io, on, cohort::as_future));
    for (const int i : {2, 0, 1}) {
      all[static_cast<std::size_t>(i)].cancel();
      turn_until(io, [&] { return all[static_cast<std::size_t>(i)].is_ready(); });
    }
    all.push_back(device::done(io, on, cohort::as_future));
    closed.open();
    turn_until(io, [&] { return all.back().is_ready(); });
    CHECK_NOTHROW(run(io, static_cast<asio::awaitable<void>&&>(all.back())));
  }
  SECTION("by a deadline") {
    bool passed = false;
    try {
      run(io, cohort::with_deadline(device::done(io, on), 2ms));
    } catch (const cohort::deadline_error&) {
      passed = true;
    }
    CHECK(passed);
  }
  SECTION("by dropping its future") {
    {
      const auto dropped = device::done(io, on, cohort::as_future);
    }
    CHECK_FALSE(is_idle(on));
  }
  closed.open();
  finish(on);
  CHECK(in[9] == 10);
  io.run();
}

TEST_CASE("a context that goes does not wait for streams") {
  const machine here;
  if (here.lacks()) return;
  const device::stream on(0);
  gate closed(on);
  auto destroyed = std::make_shared<int>(0);
  {
    asio::io_context io;
    device::done(io, on, [destroyed](std::error_code) { *destroyed = 1; });
    io.run_one_for(1ms);
  }
  CHECK(*destroyed == 0);  // not called, and gone
  CHECK(destroyed.use_count() == 1);
}

TEST_CASE("a loop that has been quiet for long still looks at the device") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  cohort::engine_options options;
  options.spin = 0us;
  options.first_nap = options.long_nap = options.longest_nap = 1h;  // would be the end of this test
  options.long_nap_after = options.longest_nap_after = 0us;
  options.nap = 1ms;
  cohort::use_engine(io, options);
  const device::stream on(0);
  gate closed(on);
  bool done = false;
  device::done(io, on, [&](std::error_code) { done = true; });
  std::thread opener([&] {
    std::this_thread::sleep_for(20ms);
    closed.open();
  });
  io.run();
  opener.join();
  CHECK(done);
  CHECK(cohort::engine_stats(io).parked == 0);
}

TEST_CASE("waiting leaves no last error behind") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream on(0);
  gate closed(on);
  bool done = false;
  device::done(io, on, [&](std::error_code) { done = true; });
  io.run_for(2ms);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  closed.open();
  io.run();
  CHECK(done);
}

TEST_CASE("a capture goes on undisturbed while others are waited for") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream on(0);
  const device::stream captured(0);
  std::optional<gate> closed(on);
  bool done = false;
  device::done(io, on, [&](std::error_code error) {
    CHECK_FALSE(error);
    done = true;
  });
  REQUIRE(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(captured.is_capturing());
  io.run_for(2ms);  // looks at the event
  std::error_code refused;
  device::done(io, captured, [&](std::error_code error) { refused = error; });
  turn_until(io, [&] { return bool(refused); });
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaSuccess);
  if (graph != nullptr) cudaGraphDestroy(graph);
  CHECK(refused == errc::not_supported);
  closed->open();
  closed.reset();
  io.run();
  CHECK(done);
}

TEST_CASE("waits are started, cancelled and finished on several threads") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream first(0);
  const device::stream second(0);
  std::atomic<int> ended{0};
  constexpr int each = 20;
  auto work = asio::make_work_guard(io);
  std::vector<std::thread> loops;
  for (int i = 0; i < 2; ++i) loops.emplace_back([&] { io.run(); });
  std::vector<std::thread> users;
  for (const auto* on : {&first, &second, &first}) {
    users.emplace_back([&io, &ended, on] {
      for (int i = 0; i < each; ++i) {
        if (i % 2 == 0) {
          device::done(io, *on, [&](std::error_code) { ++ended; });
          continue;
        }
        auto future = device::done(io, *on, cohort::as_tuple(cohort::as_future));
        if (i % 4 == 1) future.cancel();
        static_cast<void>(future.get());  // no exception: libstdc++'s count of them puzzles TSan
        ++ended;
      }
    });
  }
  for (auto& one : users) one.join();
  work.reset();
  for (auto& one : loops) one.join();
  CHECK(ended == 3 * each);
}
