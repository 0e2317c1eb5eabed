// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Futures, when_all, deadlines and rethrow, over operations that end by hand.
// tests/lifetimes/futures_test.cpp has what needs MPI.

#include <cohort/progress.hpp>
#include <cohort/progress/handler_operation.hpp>
#include <cohort/testing.hpp>

#include <asio/experimental/awaitable_operators.hpp>
#include <asio/strand.hpp>

#include <chrono>
#include <coroutine>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/run.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::as_future;
using cohort::errc;
using cohort::future;
using cohort::testing::manual_kind;
using cohort::testing::manual_source;
using cohort_test::code_of;
using cohort_test::run;
using task = asio::awaitable<void>;

const std::error_code broken = std::make_error_code(std::errc::broken_pipe);
const std::error_code full = std::make_error_code(std::errc::no_space_on_device);

struct fixture {
  asio::io_context io;
  manual_source source{io};

  /// Ends `id` after so many milliseconds of the loop, or as soon after that as it has started.
  void end_later(int id, std::chrono::milliseconds when, std::error_code error = {}) {
    asio::co_spawn(io, end(id, when, error), asio::detached);
  }
  /// A future with a value, of an operation that throws its error.
  future<int> give_later(int id);
  task end(int id, std::chrono::milliseconds when, std::error_code error) {
    asio::steady_timer timer(io, when);
    co_await timer.async_wait(asio::use_awaitable);
    while (!source.complete(id, error)) {
      timer.expires_after(1ms);
      co_await timer.async_wait(asio::use_awaitable);
    }
  }
};

/// A coroutine of another library: starts at once and knows nothing of Asio.
struct foreign_coroutine {
  struct promise_type {
    foreign_coroutine get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

foreign_coroutine await_elsewhere(future<> pending, bool& done) {
  co_await std::move(pending);
  done = true;
}

asio::awaitable<int> give(manual_source& source, int id) {
  co_await source.start(id);
  co_return 10 * id;
}
asio::awaitable<std::unique_ptr<int>> make_owned(manual_source& source, int id) {
  co_await source.start(id);
  co_return std::make_unique<int>(id);
}
future<int> fixture::give_later(int id) { return asio::co_spawn(io, give(source, id), as_future); }

}  // namespace

TEST_CASE_METHOD(fixture, "a future starts at once and is ready when the loop has delivered") {
  future<> f = source.start(1, as_future);
  CHECK(source.pending() == 1);
  CHECK(f.valid());
  source.complete(1);
  CHECK_FALSE(f.is_ready());
  io.run();
  CHECK(f.is_ready());
  f.get();  // ready: it does not block, on any thread
  CHECK_FALSE(f.valid());
}

TEST_CASE_METHOD(fixture, "an error comes out of get() and out of co_await") {
  future<> first = source.start(1, as_future);
  future<> second = source.start(2, as_future);
  source.complete(1, broken);
  source.complete(2, full);
  io.run();
  io.restart();
  try {
    first.get();
    FAIL("no error");
  } catch (const std::system_error& failed) {
    CHECK(failed.code() == broken);
  }
  CHECK(run(io, code_of(std::move(second))) == full);
}

TEST_CASE_METHOD(fixture, "a dropped future of a receive gives it up, of a borrowed buffer waits") {
  static_cast<void>(source.start(1, as_future));
  CHECK(source.pending() == 0);
  {
    const future<> f = source.start(2, manual_kind::borrowed, as_future);
    source.complete(2);  // found by the look of the destructor
    CHECK(source.pending() == 1);
  }
  CHECK(source.pending() == 0);
  io.restart();
  io.run();
}

TEST_CASE_METHOD(fixture, "a future behind an adapter has the same duty when it is dropped") {
  std::error_code error;
  asio::io_context other;
  asio::cancellation_signal signal;
  static_cast<void>(source.start(1, cohort::as_tuple(as_future)));
  CHECK(source.pending() == 0);
  static_cast<void>(source.start(2, asio::redirect_error(as_future, error)));
  CHECK(source.pending() == 0);
  static_cast<void>(source.start(3, asio::bind_executor(other.get_executor(), as_future)));
  CHECK(source.pending() == 0);
  static_cast<void>(source.start(4, asio::bind_cancellation_slot(signal.slot(), as_future)));
  CHECK(source.pending() == 0);
  io.run();
  other.run();
  signal.emit(asio::cancellation_type::terminal);  // finds nothing
}

TEST_CASE_METHOD(fixture, "moving and swapping futures loses no operation") {
  future<> first = source.start(1, as_future);
  future<> second = source.start(2, as_future);
  future<> moved(std::move(first));
  CHECK_FALSE(first.valid());  // NOLINT: what a moved-from future says
  CHECK_FALSE(first.is_ready());
  moved = std::move(second);
  first = std::move(moved);
  source.complete(1);
  source.complete(2);
  run(io, [](future<> left) -> task { co_await std::move(left); }(std::move(first)));
  CHECK(source.pending() == 0);
}

TEST_CASE_METHOD(fixture, "a future is an awaitable: co_spawn, && and || take it") {
  using namespace asio::experimental::awaitable_operators;
  bool spawned = false;
  asio::co_spawn(io, source.start(1, as_future), [&](std::exception_ptr e) { spawned = !e; });
  const auto work = [&]() -> task {
    co_await (source.start(2, as_future) && source.start(3, as_future));
    const auto first = co_await (source.start(4, as_future) || source.start(5, as_future));
    CHECK(first.index() == 1);
  };
  for (const int id : {3, 1, 2, 5}) end_later(id, std::chrono::milliseconds(1 + id));
  run(io, work());
  CHECK(spawned);
  CHECK(source.pending() == 0);  // the loser was cancelled
}

TEST_CASE_METHOD(fixture, "cancelling the await of a future is cancelling its operation") {
  asio::cancellation_signal stop;
  std::error_code ended;
  const auto waits = [&]() -> task {
    future<> f = source.start(1, as_future);
    ended = co_await code_of(std::move(f));
  };
  asio::co_spawn(io, waits(), asio::bind_cancellation_slot(stop.slot(), asio::detached));
  io.poll();
  CHECK(source.pending() == 1);
  stop.emit(asio::cancellation_type::terminal);
  io.run();
  CHECK(ended == asio::error::operation_aborted);
}

TEST_CASE("a coroutine that waits for a future may be destroyed with the context") {
  const auto watched = std::make_shared<int>(0);
  std::optional<asio::io_context> io(std::in_place);
  manual_source source(*io);
  const auto waits = [&](std::shared_ptr<int> held) -> task {
    future<> f = source.start(1, as_future);
    co_await std::move(f);
    ++*held;
  };
  asio::co_spawn(*io, waits(watched), asio::detached);
  io->run_for(1ms);
  io.reset();
  CHECK(watched.use_count() == 1);
  CHECK(*watched == 0);
}

TEST_CASE_METHOD(fixture, "get() on the loop's own thread says that it would never return") {
  std::error_code code;
  future<> f = source.start(1, as_future);
  asio::post(io, [&] {
    try {
      f.get();
    } catch (const std::system_error& failed) {
      code = failed.code();
    }
    source.complete(1);
  });
  io.run();
  CHECK(code == std::errc::resource_deadlock_would_occur);
  CHECK(f.is_ready());
  f.get();
}

TEST_CASE_METHOD(fixture, "get() on the loop's own thread says so for what Asio runs there too") {
  asio::steady_timer timer(io, 1h);
  future<> waited = timer.async_wait(as_future);
  future<int> spawned = asio::co_spawn(io, give(source, 1), as_future);
  const auto strand = asio::make_strand(io);
  future<int> in_strand = asio::co_spawn(strand, give(source, 2), as_future);
  std::vector<std::error_code> codes;
  const auto try_get = [&](auto& pending) {
    try {
      pending.get();
    } catch (const std::system_error& failed) {
      codes.push_back(failed.code());
    }
  };
  asio::post(io, [&] {
    try_get(waited);
    try_get(spawned);
    try_get(in_strand);
    timer.cancel();
  });
  end_later(1, 1ms);
  end_later(2, 1ms);
  io.run();
  CHECK(codes == std::vector(3, std::make_error_code(std::errc::resource_deadlock_would_occur)));
  CHECK(spawned.get() == 10);
  CHECK(in_strand.get() == 20);
}

TEST_CASE("a future over a strand may outlive its context") {
  std::optional<future<>> kept;
  std::optional<future<>> given_up;
  {
    asio::io_context io;
    const auto nothing = []() -> task { co_return; };
    kept = asio::co_spawn(asio::make_strand(io), nothing(), as_future);
    io.run();
    given_up = asio::co_spawn(asio::make_strand(io), nothing(), as_future);
  }
  kept->cancel();
  kept->get();
  try {
    given_up->get();
    FAIL("no error");
  } catch (const std::system_error& failed) {
    CHECK(failed.code() == errc::engine_stopped);
  }
}

TEST_CASE_METHOD(fixture,
                 "cancelling a future of a coroutine cancels what the coroutine waits for") {
  future<int> spawned = asio::co_spawn(io, give(source, 1), as_future);
  io.poll();
  CHECK(source.pending() == 1);
  spawned.cancel();
  io.run();
  try {
    spawned.get();
    FAIL("no error");
  } catch (const std::system_error& failed) {
    CHECK(failed.code() == asio::error::operation_aborted);
  }
  CHECK(source.pending() == 0);
}

TEST_CASE_METHOD(fixture, "a coroutine of another library may await a future") {
  bool done = false;
  await_elsewhere(source.start(1, as_future), done);
  CHECK_FALSE(done);
  source.complete(1);
  io.run();
  CHECK(done);
}

TEST_CASE_METHOD(fixture, "Asio's own operations give futures too") {
  asio::steady_timer timer(io, 1ms);
  future<> waited = timer.async_wait(as_future);
  future<int> value = asio::co_spawn(io, give(source, 4), as_future);
  end_later(4, 2ms);
  io.run();
  CHECK(waited.is_ready());
  CHECK(value.get() == 40);
}

// ---- when_all ----------------------------------------------------------------------------------

TEST_CASE_METHOD(fixture, "when_all waits for all futures and throws the first error by index") {
  const auto work = [&]() -> task {
    std::vector<future<>> all;
    for (int i = 0; i < 5; ++i) all.push_back(source.start(i, as_future));
    end_later(3, 1ms, full);  // first in time
    end_later(1, 3ms, broken);
    for (const int i : {0, 2, 4}) end_later(i, 5ms);
    const auto code = co_await code_of(cohort::when_all(std::move(all)));
    CHECK(code == broken);
    CHECK(source.pending() == 0);
    co_await cohort::when_all(std::vector<future<>>());
  };
  run(io, work());
}

TEST_CASE_METHOD(fixture, "when_all of awaitables starts them in order and returns their values") {
  const auto work = [&]() -> task {
    std::vector<asio::awaitable<int>> all;
    for (int i = 0; i < 4; ++i) all.push_back(give(source, i));
    for (int i = 0; i < 4; ++i) end_later(i, std::chrono::milliseconds(5 - i));
    const std::vector<int> values = co_await cohort::when_all(std::move(all));
    CHECK(values == std::vector<int>{0, 10, 20, 30});
    std::vector<asio::awaitable<int>> failing;
    for (int i = 0; i < 3; ++i) failing.push_back(give(source, i));
    end_later(2, 1ms, full);
    end_later(1, 2ms, broken);
    end_later(0, 3ms);
    const auto code = co_await code_of(cohort::when_all(std::move(failing)));
    CHECK(code == broken);
  };
  run(io, work());
}

TEST_CASE_METHOD(fixture, "cancelling when_all cancels all that it waits for") {
  asio::cancellation_signal stop;
  std::error_code ended;
  const auto waits = [&]() -> task {
    std::vector<asio::awaitable<int>> all;
    for (int i = 0; i < 3; ++i) all.push_back(give(source, i));
    ended = co_await code_of(cohort::when_all(std::move(all)));
  };
  asio::co_spawn(io, waits(), asio::bind_cancellation_slot(stop.slot(), asio::detached));
  io.poll();
  CHECK(source.pending() == 3);
  stop.emit(asio::cancellation_type::terminal);
  io.run();
  CHECK(ended == asio::error::operation_aborted);
  CHECK(source.pending() == 0);
}

TEST_CASE_METHOD(fixture, "cancelling when_all cancels all at once, whatever the first does") {
  asio::cancellation_signal stop;
  asio::steady_timer timer(io, 1h);
  std::error_code ended;
  const auto waits = [&]() -> task {
    std::vector<future<>> all;
    all.push_back(source.start(0, manual_kind::borrowed, as_future));  // cannot be cancelled
    for (int id = 1; id < 3; ++id) all.push_back(source.start(id, as_future));
    all.push_back(timer.async_wait(as_future));
    all.push_back(asio::co_spawn(io, source.start(4), as_future));
    ended = co_await code_of(cohort::when_all(std::move(all)));
  };
  asio::co_spawn(io, waits(), asio::bind_cancellation_slot(stop.slot(), asio::detached));
  io.poll();
  CHECK(source.pending() == 4);
  stop.emit(asio::cancellation_type::terminal);
  stop.emit(asio::cancellation_type::terminal);
  while (source.pending() > 1) io.run_one();
  io.run_for(5ms);
  CHECK(source.pending() == 1);
  CHECK_FALSE(ended);
  source.complete(0);
  io.run();
  CHECK(ended == asio::error::operation_aborted);
  stop.emit(asio::cancellation_type::terminal);  // finds nothing
}

TEST_CASE_METHOD(fixture,
                 "when_all in a coroutine that was cancelled before cancels what it gets") {
  asio::cancellation_signal stop;
  std::error_code ended;
  const auto waits = [&]() -> task {
    co_await asio::this_coro::throw_if_cancelled(false);
    std::vector<future<>> all;
    for (int id = 0; id < 3; ++id) all.push_back(source.start(id, as_future));
    stop.emit(asio::cancellation_type::terminal);
    ended = co_await code_of(cohort::when_all(std::move(all)));
  };
  asio::co_spawn(io, waits(), asio::bind_cancellation_slot(stop.slot(), asio::detached));
  io.run_for(10s);
  CHECK(ended == asio::error::operation_aborted);
}

TEST_CASE_METHOD(fixture, "when_all of futures of several types gives what has a value, in order") {
  const auto work = [&]() -> task {
    for (const int id : {0, 1, 2, 3, 4}) end_later(id, std::chrono::milliseconds(5 - id));
    future<int> ten = asio::co_spawn(io, give(source, 1), as_future);
    future<std::tuple<std::error_code>> code = source.start(2, cohort::as_tuple(as_future));
    future<std::unique_ptr<int>> owned = asio::co_spawn(io, make_owned(source, 3), as_future);
    auto [number, error, pointer] = co_await cohort::when_all(
        source.start(0, as_future), std::move(ten), std::move(code), std::move(owned));
    CHECK(number == 10);
    CHECK(error == std::tuple<std::error_code>());
    CHECK(*pointer == 3);
    const int alone = co_await cohort::when_all(asio::co_spawn(io, give(source, 4), as_future));
    CHECK(alone == 40);
    end_later(5, 2ms);
    end_later(6, 1ms);
    co_await cohort::when_all(source.start(5, as_future), source.start(6, as_future));
    CHECK(source.pending() == 0);
  };
  run(io, work());
}

TEST_CASE_METHOD(fixture, "when_all of several types waits for all and throws the first error") {
  const auto work = [&]() -> task {
    end_later(2, 1ms, full);  // first in time
    end_later(1, 3ms, broken);
    end_later(0, 5ms);
    auto all =
        cohort::when_all(source.start(0, as_future), give_later(1), source.start(2, as_future));
    const auto code = co_await code_of(std::move(all));
    CHECK(code == broken);
    CHECK(source.pending() == 0);
  };
  run(io, work());
}

TEST_CASE_METHOD(fixture, "when_all of several types takes awaitables and futures together") {
  const auto work = [&]() -> task {
    for (const int id : {0, 1, 2}) end_later(id, std::chrono::milliseconds(5 - id));
    future<> running = source.start(0, as_future);
    const auto [first, second] =
        co_await cohort::when_all(give(source, 1), std::move(running), give(source, 2));
    CHECK(first == 10);
    CHECK(second == 20);
  };
  run(io, work());
}

TEST_CASE_METHOD(fixture, "cancelling when_all of several types cancels all at once") {
  asio::cancellation_signal stop;
  std::error_code ended;
  const auto waits = [&]() -> task {
    auto all = cohort::when_all(source.start(0, as_future), give_later(1),
                                source.start(2, cohort::as_tuple(as_future)));
    ended = co_await code_of(std::move(all));
  };
  asio::co_spawn(io, waits(), asio::bind_cancellation_slot(stop.slot(), asio::detached));
  io.poll();
  CHECK(source.pending() == 3);
  stop.emit(asio::cancellation_type::terminal);
  io.run();
  CHECK(ended == asio::error::operation_aborted);
  CHECK(source.pending() == 0);
  stop.emit(asio::cancellation_type::terminal);  // finds nothing
}

// ---- futures without their values --------------------------------------------------------------

TEST_CASE_METHOD(fixture, "futures of values stand beside others in a vector of future<>") {
  const auto work = [&]() -> task {
    std::vector<future<>> all;
    all.push_back(source.start(0, as_future));
    all.push_back(source.start(1, cohort::as_tuple(as_future)));
    all.push_back(asio::co_spawn(io, give(source, 2), as_future));
    all.push_back(asio::co_spawn(io, make_owned(source, 3), as_future));
    for (int id = 0; id < 4; ++id) end_later(id, std::chrono::milliseconds(5 - id));
    co_await cohort::when_all(std::move(all));
    CHECK(source.pending() == 0);
    std::vector<future<>> failing;
    failing.push_back(give_later(5));
    failing.push_back(source.start(6, as_future));
    end_later(6, 1ms, full);
    end_later(5, 2ms, broken);
    const auto code = co_await code_of(cohort::when_all(std::move(failing)));
    CHECK(code == broken);
  };
  run(io, work());
}

TEST_CASE_METHOD(fixture, "a future without its value is the same operation") {
  auto of_value = source.start(1, cohort::as_tuple(as_future));
  future<> f = std::move(of_value);
  CHECK_FALSE(of_value.valid());  // NOLINT: what a moved-from future says
  CHECK(f.valid());
  CHECK_FALSE(f.is_ready());
  f = source.start(2, cohort::as_tuple(as_future));  // the other is given up, as it is dropped
  CHECK(source.pending() == 1);
  source.complete(2);
  run(io, std::move(f));

  future<> got = asio::co_spawn(io, give(source, 3), as_future);
  end_later(3, 1ms);
  run(io, [](future<>& each) -> task {
    while (!each.is_ready()) {
      co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    }
  }(got));
  got.get();

  future<> cancelled = source.start(4, cohort::as_tuple(as_future));
  cancelled.cancel();
  CHECK(run(io, code_of(std::move(cancelled))) == std::error_code());  // it is in the tuple
  bool done = false;
  await_elsewhere(source.start(5, cohort::as_tuple(as_future)), done);
  source.complete(5);
  io.restart();
  io.run();
  CHECK(done);
}

TEST_CASE_METHOD(fixture, "a future without its value has the same duty when it is dropped") {
  {
    const future<> given_up = source.start(1, cohort::as_tuple(as_future));
    CHECK(source.pending() == 1);
  }
  CHECK(source.pending() == 0);
  {
    const future<> waits = source.start(2, manual_kind::borrowed, cohort::as_tuple(as_future));
    source.complete(2);  // found by the look of the destructor
    CHECK(source.pending() == 1);
  }
  CHECK(source.pending() == 0);
  io.run();
}

TEST_CASE_METHOD(fixture, "cancelling the await of a future without its value cancels it") {
  asio::cancellation_signal stop;
  std::error_code ended;
  const auto waits = [&]() -> task {
    future<> f = asio::co_spawn(io, give(source, 1), as_future);
    ended = co_await code_of(std::move(f));
  };
  asio::co_spawn(io, waits(), asio::bind_cancellation_slot(stop.slot(), asio::detached));
  io.poll();
  CHECK(source.pending() == 1);
  stop.emit(asio::cancellation_type::terminal);
  io.run();
  CHECK(ended == asio::error::operation_aborted);
  CHECK(source.pending() == 0);
}

// ---- deadlines ---------------------------------------------------------------------------------

TEST_CASE_METHOD(fixture, "a deadline that passes cancels the work and says how long it waited") {
  const auto work = [&]() -> task {
    std::string text;
    try {
      co_await cohort::with_deadline(source.start(1), 5ms);
    } catch (const cohort::deadline_error& passed) {
      text = passed.what();
      CHECK(passed.code() == errc::deadline_exceeded);
    }
    CHECK_THAT(text, Catch::Matchers::ContainsSubstring("5 ms"));
    CHECK(source.pending() == 0);
  };
  run(io, work());
}

TEST_CASE_METHOD(fixture, "work that ends in time gives its result or its own error") {
  const auto work = [&]() -> task {
    end_later(1, 1ms);
    const int value = co_await cohort::with_deadline(give(source, 1), 10s);
    CHECK(value == 10);
    end_later(2, 1ms, broken);
    auto code = co_await code_of(cohort::with_deadline(source.start(2), 10s));
    CHECK(code == broken);
    // An abort that no deadline caused stays one.
    end_later(3, 1ms, asio::error::operation_aborted);
    code = co_await code_of(cohort::with_deadline(source.start(3), 10s));
    CHECK(code == asio::error::operation_aborted);
  };
  run(io, work());
}

TEST_CASE_METHOD(fixture, "anything that can be awaited has a deadline") {
  const auto work = [&]() -> task {
    future<> running = source.start(1, as_future);
    auto code = co_await code_of(cohort::with_deadline(std::move(running), 2ms));
    CHECK(code == errc::deadline_exceeded);
    asio::steady_timer timer(co_await asio::this_coro::executor, 1h);
    code = co_await code_of(cohort::with_deadline(timer.async_wait(asio::use_awaitable), 2ms));
    CHECK(code == errc::deadline_exceeded);
    std::vector<asio::awaitable<int>> several;
    for (int i = 0; i < 3; ++i) several.push_back(give(source, i));
    code = co_await code_of(cohort::with_deadline(cohort::when_all(std::move(several)), 2ms));
    CHECK(code == errc::deadline_exceeded);
    code =
        co_await code_of(cohort::with_deadline(cohort::with_deadline(source.start(5), 2ms), 10s));
    CHECK(code == errc::deadline_exceeded);
    CHECK(source.pending() == 0);
  };
  run(io, work());
}

TEST_CASE_METHOD(fixture, "work that cannot be cancelled is waited for, beyond the deadline") {
  const auto work = [&]() -> task {
    end_later(1, 10ms);
    co_await cohort::with_deadline(source.start(1, manual_kind::borrowed), 1ms);
    CHECK(source.pending() == 0);
  };
  run(io, work());
}

TEST_CASE_METHOD(fixture, "the caller's own cancellation passes through a deadline") {
  asio::cancellation_signal stop;
  std::error_code ended;
  const auto waits = [&]() -> task {
    ended = co_await code_of(cohort::with_deadline(source.start(1), 10s));
  };
  asio::co_spawn(io, waits(), asio::bind_cancellation_slot(stop.slot(), asio::detached));
  io.poll();
  stop.emit(asio::cancellation_type::terminal);
  io.run();
  CHECK(ended == asio::error::operation_aborted);
}

// ---- rethrow -----------------------------------------------------------------------------------

TEST_CASE_METHOD(fixture, "rethrow lets an exception out of run() and marks the program failed") {
  const auto fails = [&]() -> task {
    co_await source.start(1);
    throw std::runtime_error("on purpose");
  };
  source.start(2, [](std::error_code) {});
  asio::co_spawn(io, fails(), cohort::rethrow);
  source.complete(1);
  io.poll();
  source.complete(1);
  CHECK_THROWS_WITH(io.run(), "on purpose");
  CHECK(cohort::process::failed);
  cohort::process::failed = false;
  asio::co_spawn(io, []() -> task { co_return; }, cohort::rethrow);
  asio::co_spawn(io, give(source, 3), cohort::rethrow);
  end_later(3, 1ms);
  io.restart();
  io.run();
  CHECK_FALSE(cohort::process::failed);
}
