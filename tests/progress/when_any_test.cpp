// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The first of several futures. What other threads do to it is in threads_test.cpp.

#include <cohort/progress.hpp>
#include <cohort/testing.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/run.hpp"

namespace when_any_test {

using namespace std::chrono_literals;
using cohort::as_future;
using cohort::future;
using cohort::when_any;
using cohort::testing::manual_source;
using cohort_test::code_of;
using cohort_test::run;
using task = asio::awaitable<void>;

const std::error_code broken = std::make_error_code(std::errc::broken_pipe);

struct loop {
  asio::io_context io;
  manual_source source{io};

  std::vector<future<>> start(int count) {
    std::vector<future<>> all;
    for (int id = 0; id < count; ++id) all.push_back(source.start(id, as_future));
    return all;
  }
  /// Once what is ready in the loop has run, so that somebody waits.
  void complete_later(int id, std::error_code error = {}) {
    asio::post(io, [this, id, error] { source.complete(id, error); });
  }
};

}  // namespace when_any_test

TEST_CASE_METHOD(when_any_test::loop, "when_any names the first, and the others stay in flight") {
  using namespace when_any_test;
  const auto work = [&]() -> task {
    auto all = start(4);
    std::vector<std::size_t> order;
    for (const int id : {2, 0, 3, 1}) {
      complete_later(id);
      const std::size_t i = co_await when_any(all);
      CHECK(all[i].is_ready());
      co_await std::move(all[i]);
      order.push_back(i);
      CHECK(source.pending() == 4 - order.size());
    }
    CHECK(order == std::vector<std::size_t>{2, 0, 3, 1});
    const auto code = co_await code_of(when_any(all));
    CHECK(code == std::errc::invalid_argument);
    std::vector<future<>> none;
    const auto of_none = co_await code_of(when_any(none));
    CHECK(of_none == std::errc::invalid_argument);
  };
  run(io, work());
}

TEST_CASE_METHOD(when_any_test::loop, "of several that are ready when_any names the least") {
  using namespace when_any_test;
  const auto work = [&]() -> task {
    auto all = start(4);
    for (const int id : {3, 1, 2}) source.complete(id);
    co_await asio::post(io, asio::use_awaitable);
    while (!all[1].is_ready() || !all[2].is_ready() || !all[3].is_ready()) {
      co_await asio::post(io, asio::use_awaitable);
    }
    for (const std::size_t expected : {1, 2, 3}) {
      const std::size_t first = co_await when_any(all);
      const std::size_t again = co_await when_any(all);
      CHECK(first == expected);
      CHECK(again == expected);
      all[first].get();  // which consumes it as an await does
    }
    all.erase(all.begin() + 1, all.end());
    complete_later(0);
    const std::size_t last = co_await when_any(all);
    CHECK(last == 0);
  };
  run(io, work());
}

TEST_CASE_METHOD(when_any_test::loop, "that a future has failed is no error of when_any") {
  using namespace when_any_test;
  const auto work = [&]() -> task {
    auto all = start(3);
    complete_later(1, broken);
    const std::size_t i = co_await when_any(all);
    CHECK(i == 1);
    const auto code = co_await code_of(std::move(all[i]));
    CHECK(code == broken);
  };
  run(io, work());
  CHECK(source.pending() == 0);  // receives that were dropped
}

TEST_CASE_METHOD(when_any_test::loop, "when_any takes futures of several types, spans and arrays") {
  using namespace when_any_test;
  const auto work = [&]() -> task {
    future<> first = source.start(0, as_future);
    future<std::tuple<std::error_code>> second = source.start(1, cohort::as_tuple(as_future));
    complete_later(1, broken);
    std::size_t i = co_await when_any(first, second);
    CHECK(i == 1);
    const auto [error] = co_await std::move(second);
    CHECK(error == broken);
    complete_later(0);
    i = co_await when_any(first, second);
    CHECK(i == 0);
    std::array<future<>, 2> pair{source.start(2, as_future), source.start(3, as_future)};
    complete_later(3);
    const std::span<future<>> both(pair);
    i = co_await when_any(both);
    CHECK(i == 1);
    i = co_await when_any(pair);
    CHECK(i == 1);
  };
  run(io, work());
}

TEST_CASE_METHOD(when_any_test::loop, "cancelling when_any ends the wait and no operation") {
  using namespace when_any_test;
  asio::cancellation_signal stop;
  auto all = start(3);
  std::error_code ended;
  const auto waits = [&]() -> task { ended = co_await code_of(when_any(all)); };
  asio::co_spawn(io, waits(), asio::bind_cancellation_slot(stop.slot(), asio::detached));
  io.poll();
  CHECK_FALSE(ended);
  stop.emit(asio::cancellation_type::none);
  io.poll();
  CHECK_FALSE(ended);
  stop.emit(asio::cancellation_type::terminal);
  io.poll();
  CHECK(ended == asio::error::operation_aborted);
  CHECK(source.pending() == 3);
  stop.emit(asio::cancellation_type::terminal);  // finds nothing
  for (int id = 0; id < 3; ++id) source.complete(id);
  run(io, cohort::when_all(std::move(all)));
}

TEST_CASE_METHOD(when_any_test::loop, "when_any with a deadline may be tried again") {
  using namespace when_any_test;
  const auto work = [&]() -> task {
    auto all = start(2);
    bool late = false;
    try {
      co_await cohort::with_deadline(when_any(all), 1ms);
    } catch (const cohort::deadline_error&) {
      late = true;
    }
    CHECK(late);
    CHECK(source.pending() == 2);
    complete_later(1);
    const std::size_t i = co_await cohort::with_deadline(when_any(all), 1h);
    CHECK(i == 1);
  };
  run(io, work());
}

TEST_CASE_METHOD(when_any_test::loop, "a coroutine that was cancelled before may use when_any") {
  using namespace when_any_test;
  asio::cancellation_signal stop;
  std::size_t index = 7;
  const auto waits = [&]() -> task {
    co_await asio::this_coro::throw_if_cancelled(false);
    auto all = start(3);
    stop.emit(asio::cancellation_type::terminal);
    complete_later(2);
    index = co_await when_any(all);
    for (const int id : {0, 1}) source.complete(id);
    co_await cohort::when_all(std::move(all));
  };
  asio::co_spawn(io, waits(), asio::bind_cancellation_slot(stop.slot(), asio::detached));
  io.run();
  CHECK(index == 2);
}

TEST_CASE("a coroutine that waits in when_any is destroyed with a context of one of its futures") {
  using namespace when_any_test;
  asio::cancellation_signal stop;
  const auto watched = std::make_shared<int>(0);
  const bool other_goes = GENERATE(false, true);
  std::optional<asio::io_context> io(std::in_place);
  std::optional<asio::io_context> other(std::in_place);
  manual_source here(*io);
  manual_source there(*other);
  const auto waits = [&](std::shared_ptr<int> held) -> task {
    std::vector<future<>> all;
    all.push_back(here.start(1, as_future));
    all.push_back(there.start(2, as_future));
    co_await when_any(all);
    ++*held;
  };
  asio::co_spawn(*io, waits(watched), asio::bind_cancellation_slot(stop.slot(), asio::detached));
  io->poll();
  CHECK(watched.use_count() == 2);
  (other_goes ? other : io).reset();
  if (other_goes) io->poll();  // where Asio unwinds the stack
  CHECK(watched.use_count() == 1);
  CHECK(*watched == 0);
  stop.emit(asio::cancellation_type::terminal);  // finds nothing
}
