// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The engine: laps, the ready queue, sleep, fairness, and what happens inside a nested handler.

#include <cohort/progress.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/handler_operation.hpp>
#include <cohort/progress/polled_source.hpp>
#include <cohort/testing.hpp>

#include <asio/local/connect_pair.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/read.hpp>
#include <asio/strand.hpp>
#include <asio/write.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/run.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::engine_options;
using cohort::engine_stats;
using cohort::testing::manual_kind;
using cohort::testing::manual_source;
using cohort_test::run;
using task = asio::awaitable<void>;

/// A handler that notes its name.
auto note(std::vector<int>& log, int id) {
  return [&log, id](std::error_code) { log.push_back(id); };
}

/// A source of which one thing is pending for ever, as a device that is asked would be.
struct dear_source {
  static constexpr bool is_dear = true;
  explicit dear_source(asio::io_context& io)
      : engine(asio::use_service<cohort::progress::engine>(io)) {
    engine.attach(*this);
  }
  ~dear_source() { engine.detach(this); }

  bool begin_lap(cohort::progress::ready_queue&) {
    in_this_lap = 0;
    return true;
  }
  std::size_t test(cohort::progress::ready_queue&) {
    ++looks;
    most_in_a_lap = std::max(most_in_a_lap, ++in_this_lap);
    return 0;
  }
  void end_lap() {}
  [[nodiscard]] std::size_t pending() const { return is_over ? 0 : 1; }
  [[nodiscard]] std::size_t bytes() const { return 0; }

  cohort::progress::engine& engine;
  std::uint64_t looks = 0;
  unsigned in_this_lap = 0;
  unsigned most_in_a_lap = 0;
  bool is_over = false;
};

}  // namespace

TEST_CASE("with nothing pending there is no lap, and run() returns") {
  asio::io_context io;
  manual_source source(io);
  run(io, [](manual_source&) -> task {
    asio::steady_timer timer(co_await asio::this_coro::executor, 5ms);
    co_await timer.async_wait(asio::use_awaitable);
  }(source));
  CHECK(engine_stats(io).laps == 0);
  CHECK(source.looks() == 0);
}

TEST_CASE("after the last operation laps end, although a timer is armed") {
  asio::io_context io;
  manual_source source(io);
  std::uint64_t laps_at_end = 0;
  std::uint64_t laps_later = 0;
  const auto work = [&]() -> task {
    auto pending = source.start(1, cohort::as_future);
    source.complete(1);
    co_await std::move(pending);
    asio::steady_timer timer(co_await asio::this_coro::executor, 1ms);
    co_await timer.async_wait(asio::use_awaitable);
    laps_at_end = engine_stats(io).laps;
    timer.expires_after(10ms);
    co_await timer.async_wait(asio::use_awaitable);
    laps_later = engine_stats(io).laps;
  };
  run(io, work());
  CHECK(laps_at_end > 0);
  CHECK(laps_later == laps_at_end);
}

TEST_CASE("a pending operation keeps the loop alive until it is done") {
  asio::io_context io;
  manual_source source(io);
  std::vector<int> log;
  source.start(1, note(log, 1));
  io.run_for(3ms);
  CHECK_FALSE(io.stopped());
  CHECK(log.empty());
  source.complete(1);
  io.run();
  CHECK(log == std::vector<int>{1});
  CHECK(engine_stats(io).completions == 1);
}

TEST_CASE("outcomes of one look are delivered in the order in which the source reports them") {
  asio::io_context io;
  manual_source source(io);
  std::vector<int> log;
  for (int i = 0; i < 10; ++i) source.start(i, note(log, i));
  for (const int i : {7, 2, 9, 0}) source.complete(i);
  while (log.size() < 4) io.run_one();
  io.run_for(2ms);
  CHECK(log == std::vector<int>{0, 2, 7, 9});
}

TEST_CASE("a dear source is looked at once a lap, and more often where nothing else is pending") {
  asio::io_context io;
  cohort::engine_options always_long;  // whatever a look costs here
  always_long.spin = always_long.long_lap_time = std::chrono::hours(1);
  asio::use_service<cohort::progress::engine>(io).configure(always_long);
  manual_source other(io);
  dear_source dear(io);
  std::vector<int> log;
  other.start(1, note(log, 1));
  while (other.looks() < 1000) io.run_one();
  CHECK(dear.most_in_a_lap == 1);
  CHECK(other.looks() > 4 * dear.looks);

  other.complete(1);
  while (log.empty()) io.run_one();
  const auto looks_before = dear.looks;
  while (dear.looks < looks_before + 100) io.run_one();
  CHECK(dear.most_in_a_lap > 1);
  CHECK(dear.most_in_a_lap < always_long.long_lap);  // fewer than looks at memory
  dear.is_over = true;
}

TEST_CASE("several sources share one engine") {
  asio::io_context io;
  manual_source first(io);
  manual_source second(io);
  std::vector<int> log;
  first.start(1, note(log, 1));
  second.start(2, note(log, 2));
  second.complete(2);
  while (log.empty()) io.run_one();
  io.run_for(1ms);
  CHECK(log == std::vector<int>{2});
  first.complete(1);
  io.restart();
  io.run();
  CHECK(log == std::vector<int>{2, 1});
}

TEST_CASE("a source that may not be looked at does not keep the others from being looked at") {
  struct closed {
    bool begin_lap(cohort::progress::ready_queue&) { return false; }
    std::size_t test(cohort::progress::ready_queue&) { return 0; }
    void end_lap() { FAIL("ended without a beginning"); }
    [[nodiscard]] std::size_t pending() const { return 0; }
    [[nodiscard]] std::size_t bytes() const { return 0; }
  };
  closed refuses;
  asio::io_context io;
  manual_source first(io);
  cohort::use_engine(io).attach(refuses);
  manual_source second(io);
  std::vector<int> log;
  first.start(1, note(log, 1));
  second.start(2, note(log, 2));
  first.complete(1);
  second.complete(2);
  io.run_for(2s);
  CHECK(log == std::vector<int>{1, 2});
}

TEST_CASE("a coroutine on a strand goes on there after an await") {
  asio::io_context io;
  manual_source source(io);
  const auto strand = asio::make_strand(io);
  bool before = false;
  bool after = false;
  asio::co_spawn(
      strand,
      [&]() -> asio::awaitable<void> {
        before = strand.running_in_this_thread();
        co_await source.start(1);
        after = strand.running_in_this_thread();
      },
      asio::detached);
  asio::post(io, [&] { source.complete(1); });
  io.run();
  CHECK(before);
  CHECK(after);
}

TEST_CASE("no nap is longer than what a source with something pending asks for") {
  struct impatient {
    int laps = 0;
    bool begin_lap(cohort::progress::ready_queue&) { return ++laps != 0; }
    std::size_t test(cohort::progress::ready_queue&) { return 0; }
    void end_lap() {}
    [[nodiscard]] std::size_t pending() const { return laps < 50 ? 1 : 0; }
    [[nodiscard]] std::size_t bytes() const { return 0; }
    [[nodiscard]] std::chrono::nanoseconds longest_nap() const { return 100us; }
  };
  impatient source;
  asio::io_context io;
  engine_options options;
  options.spin = options.long_nap_after = options.longest_nap_after = 0us;
  options.first_nap = options.nap = options.long_nap = options.longest_nap = 1h;
  auto& engine = cohort::use_engine(io, options);
  engine.attach(source);
  engine.started();
  io.run_for(20s);  // it would sleep through this
  CHECK(source.laps >= 50);
}

TEST_CASE("a handler that throws leaves the rest queued and the engine usable") {
  asio::io_context io;
  manual_source source(io);
  std::vector<int> log;
  source.start(0, [](std::error_code) { throw std::runtime_error("first"); });
  source.start(1, note(log, 1));
  source.start(2, [](std::error_code) { throw std::runtime_error("second"); });
  source.start(3, note(log, 3));
  source.start(4, note(log, 4));
  for (int i = 0; i < 4; ++i) source.complete(i);
  CHECK_THROWS_WITH(io.run(), "first");
  CHECK(log.empty());
  CHECK_THROWS_WITH(io.run(), "second");
  CHECK(log == std::vector<int>{1});
  source.complete(4);
  io.run();
  CHECK(log == std::vector<int>{1, 3, 4});
  CHECK(io.stopped());
}

TEST_CASE("a chain of operations that complete at once does not starve a timer") {
  asio::io_context io;
  manual_source source(io);
  bool fired = false;
  std::uint64_t links = 0;
  const auto chain = [&]() -> task {
    while (!fired) {
      auto next = source.start(1, cohort::as_future);
      source.complete(1);
      co_await std::move(next);
      ++links;
    }
  };
  const auto timer_fires = [&]() -> task {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (int i = 0; i < 10; ++i) {
      timer.expires_after(1ms);
      co_await timer.async_wait(asio::use_awaitable);
    }
    fired = true;
  };
  asio::co_spawn(io, chain(), asio::detached);
  run(io, timer_fires());
  CHECK(links > 100);
}

TEST_CASE("what is ready is delivered before a lap lets another handler run inside it") {
  asio::io_context io;
  cohort::use_engine(io, {.spin = 10s, .long_lap_time = 1us});
  manual_source source(io);
  std::size_t delivered = 0;
  std::size_t ran_after = 0;
  const auto slow = [&](std::error_code) {
    ++delivered;
    const auto until = std::chrono::steady_clock::now() + 1us;
    while (std::chrono::steady_clock::now() < until) {
    }
  };
  for (int id = 0; id < 40; ++id) source.start(id, slow);
  source.start(40, [](std::error_code) {});
  for (int id = 0; id < 40; ++id) source.complete(id);
  asio::post(io, [&] { ran_after = delivered; });
  io.run_one();  // the lap ends when handlers have had their time, with the rest still ready
  CHECK(delivered == 16);
  CHECK(ran_after == 0);
  io.run_one();
  CHECK(ran_after == 16);  // in the loop's own turn
  while (delivered < 40) io.run_one();
  source.complete(40);
  io.run();
}

TEST_CASE("a receive that is pending for ever starves neither posts nor timers nor sockets") {
  asio::io_context io;
  manual_source source(io);
  source.start(1, [](std::error_code) {});
  int posts = 0;
  int echoes = 0;
  const auto post_loop = [&]() -> task {
    for (; posts < 5000; ++posts) co_await asio::post(asio::use_awaitable);
  };
  asio::local::stream_protocol::socket here(io);
  asio::local::stream_protocol::socket there(io);
  asio::local::connect_pair(here, there);
  const auto echo = [&]() -> task {
    char byte = 0;
    for (int i = 0; i < 200; ++i) {
      co_await asio::async_read(there, asio::buffer(&byte, 1), asio::use_awaitable);
      co_await asio::async_write(there, asio::buffer(&byte, 1), asio::use_awaitable);
    }
  };
  const auto talk = [&]() -> task {
    char byte = 'x';
    for (; echoes < 200; ++echoes) {
      co_await asio::async_write(here, asio::buffer(&byte, 1), asio::use_awaitable);
      co_await asio::async_read(here, asio::buffer(&byte, 1), asio::use_awaitable);
    }
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (int i = 0; i < 5; ++i) {
      timer.expires_after(1ms);
      co_await timer.async_wait(asio::use_awaitable);
    }
    source.complete(1);
  };
  asio::co_spawn(io, post_loop(), asio::detached);
  asio::co_spawn(io, echo(), asio::detached);
  run(io, talk());
  CHECK(posts == 5000);
  CHECK(echoes == 200);
}

TEST_CASE("waiting long is sleeping, with ever longer naps") {
  asio::io_context io;
  manual_source source(io);
  std::vector<int> log;
  source.start(1, note(log, 1));
  io.run_for(5ms);
  const auto spun = source.looks();
  io.run_for(60ms);
  const auto napped = source.looks() - spun;
  CHECK(napped > 2);
  CHECK(napped < 8 * 1000);  // 8 looks a lap, naps of 250 us: 240 laps
  source.complete(1);
  io.run();
  CHECK(log == std::vector<int>{1});
}

TEST_CASE("an operation started in a nap is found, and so is one ended in a nap") {
  asio::io_context io;
  cohort::use_engine(io,
                     {.spin = 0us, .first_nap = 1h, .nap = 1h, .long_nap = 1h, .longest_nap = 1h});
  manual_source source(io);
  std::vector<int> log;
  source.start(1, note(log, 1));
  asio::steady_timer timer(io, 3ms);
  timer.async_wait([&](std::error_code) {
    source.start(2, note(log, 2));
    source.complete(2);
  });
  while (log.empty()) io.run_one();
  CHECK(log == std::vector<int>{2});
  source.complete(1);
  io.run();
  CHECK(log == std::vector<int>{2, 1});
}

TEST_CASE("run_one and poll make progress too") {
  asio::io_context io;
  manual_source source(io);
  std::vector<int> log;
  source.start(1, note(log, 1));
  source.complete(1);
  while (log.empty()) io.run_one();
  source.start(2, note(log, 2));
  source.complete(2);
  if (io.stopped()) io.restart();
  while (log.size() < 2) {
    io.poll();
    if (io.stopped()) io.restart();
  }
  CHECK(log == std::vector<int>{1, 2});
}

TEST_CASE("a look from inside a computation finds outcomes and runs no handler") {
  asio::io_context io;
  manual_source source(io);
  auto& engine = cohort::use_engine(io);
  std::vector<int> log;
  source.start(1, note(log, 1));
  source.complete(1);
  engine.look();
  CHECK(source.pending() == 0);
  CHECK(log.empty());
  io.run();
  CHECK(log == std::vector<int>{1});
}

// ---- a long lap lets another handler run inside it ------------------------------------------

namespace {

/// A context whose first lap is a long one, with operation 1 pending and a handler that the lap
/// finds with its nested `poll_one()`.
struct nested {
  asio::io_context io;
  manual_source source{io};
  std::vector<int> log;
  std::uint64_t looks_when_called = 0;

  template <class Function>
  explicit nested(Function function) {
    // Looks must be dear enough that the lap does not end in between, and the spin long enough.
    cohort::use_engine(io, {.spin = 10s, .long_lap_time = 1s});
    source.start(1, note(log, 1));
    asio::post(io, [this, function] {
      looks_when_called = source.looks();
      function(*this);
    });
  }
  /// The first round of a lap only: the handler ran inside the lap.
  void check_it_was_nested() const {
    CHECK(looks_when_called > 0);
    CHECK(looks_when_called <= engine_options().long_lap);
  }
};

}  // namespace

TEST_CASE("a handler that throws inside a lap leaves the engine as it was") {
  nested test([](nested&) { throw std::runtime_error("from inside"); });
  CHECK_THROWS_WITH(test.io.run(), "from inside");
  test.check_it_was_nested();
  CHECK(test.log.empty());
  test.source.complete(1);
  test.io.run();
  CHECK(test.log == std::vector<int>{1});
}

TEST_CASE("stopping the context inside a lap ends the lap, and the next run goes on") {
  nested test([](nested& self) { self.io.stop(); });
  test.io.run();
  test.check_it_was_nested();
  CHECK(test.log.empty());
  CHECK(engine_stats(test.io).laps == 1);
  test.source.complete(1);
  test.io.restart();
  test.io.run();
  CHECK(test.log == std::vector<int>{1});
}

TEST_CASE("a look inside a lap finds what has ended, and it is delivered once") {
  nested test([](nested& self) {
    self.source.start(2, note(self.log, 2));
    self.source.complete(2);
    self.source.complete(1);
    cohort::use_engine(self.io).look();
    CHECK(self.source.pending() == 0);
    CHECK(self.log.empty());
  });
  test.io.run();
  test.check_it_was_nested();
  CHECK(test.log == std::vector<int>{1, 2});
  CHECK(engine_stats(test.io).completions == 2);
}

TEST_CASE("operations started and ended inside a lap are found by it") {
  nested test([](nested& self) {
    for (int i = 2; i < 40; ++i) {
      self.source.start(i, note(self.log, i));
      self.source.complete(i);
    }
    self.source.complete(1);
  });
  test.io.run();
  test.check_it_was_nested();
  CHECK(test.log.size() == 39);
}

TEST_CASE("a context that was stopped inside a lap may be destroyed with operations pending") {
  const auto watched = std::make_shared<int>(0);
  {
    nested test([watched](nested& self) {
      self.source.start(2, [watched](std::error_code) { ++*watched; });
      self.source.start(3, [watched](std::error_code) { ++*watched; });
      self.source.complete(3);
      self.io.stop();
    });
    test.io.run();
    test.check_it_was_nested();
  }
  CHECK(watched.use_count() == 1);
  CHECK(*watched == 0);
}

TEST_CASE("a lap that is left by a throw may be the last one before the context goes") {
  const auto watched = std::make_shared<int>(0);
  {
    nested test([watched](nested& self) {
      self.source.start(2, [watched](std::error_code) { ++*watched; });
      self.source.complete(2);
      throw std::runtime_error("last words");
    });
    CHECK_THROWS(test.io.run());
  }
  CHECK(watched.use_count() == 1);
  CHECK(*watched == 0);
}

// ---- executors and the end -------------------------------------------------------------------

TEST_CASE("a handler bound to another context runs there, and keeps that alive") {
  asio::io_context io;
  asio::io_context other;
  manual_source source(io);
  std::vector<int> log;
  source.start(1, asio::bind_executor(other, note(log, 1)));
  source.complete(1);
  io.run();
  CHECK(log.empty());
  other.run();
  CHECK(log == std::vector<int>{1});
  other.restart();
  source.start(2, asio::bind_executor(other, note(log, 2)));
  CHECK(other.poll() == 0);
  CHECK_FALSE(other.stopped());
  source.complete(2);
  io.restart();
  io.run();
  other.run();
  CHECK(log == std::vector<int>{1, 2});
}

TEST_CASE("destroying the context destroys coroutines that wait, calling nothing") {
  const auto watched = std::make_shared<int>(0);
  std::optional<asio::io_context> io(std::in_place);
  manual_source source(*io);
  const auto waits = [&](std::shared_ptr<int> held, int id) -> task {
    co_await source.start(id);
    ++*held;
  };
  for (int i = 0; i < 3; ++i) asio::co_spawn(*io, waits(watched, i), asio::detached);
  io->run_for(1ms);
  CHECK(watched.use_count() == 4);
  source.complete(1);
  io.reset();
  CHECK(watched.use_count() == 1);
  CHECK(*watched == 0);
}

TEST_CASE("what is posted while the context is destroyed is destroyed with it") {
  const auto kept = std::make_shared<int>(0);
  bool called = false;
  {
    asio::io_context io;
    asio::steady_timer timer(io, 1h);  // its service is older than the engine, so it ends later
    auto& engine = asio::use_service<cohort::progress::engine>(io);
    struct posts_at_its_end {
      std::function<void()> handler;
      cohort::progress::engine& by;
      ~posts_at_its_end() {
        cohort::progress::posted_handler<std::function<void()>>(std::move(handler), by).post();
      }
    };
    const std::shared_ptr<posts_at_its_end> last(
        new posts_at_its_end{[kept, &called] { called = true; }, engine});
    timer.async_wait([last](std::error_code) {});
    CHECK(kept.use_count() == 2);
  }
  CHECK_FALSE(called);
  CHECK(kept.use_count() == 1);
}

TEST_CASE("deliveries of a lap stop soon when the context is stopped") {
  asio::io_context io;
  cohort::use_engine(io, {.long_lap_time = 1s});
  auto& engine = asio::use_service<cohort::progress::engine>(io);
  manual_source source(io);
  int delivered = 0;
  std::function<void()> count = [&] {
    if (++delivered == 1) io.stop();
    if (delivered < 1000) {
      cohort::progress::posted_handler<std::function<void()>>(count, engine).post();
    }
  };
  source.start(1, [&](std::error_code) { count(); });  // called by a lap
  source.complete(1);
  io.run();
  CHECK(delivered > 1);
  CHECK(delivered <= 17);
  io.restart();
  io.run();
  CHECK(delivered == 1000);
}

TEST_CASE("what cannot be cancelled is waited for, bounded, and then named") {
  asio::io_context unrelated;
  std::optional<asio::io_context> io(std::in_place);
  cohort::use_engine(*io, {.drain = 5ms});
  manual_source source(*io);
  bool called = false;
  source.start(77, manual_kind::borrowed, [&](std::error_code) { called = true; });
  io.reset();
  CHECK_FALSE(called);
  CHECK_THAT(cohort::process::leftovers(),
             Catch::Matchers::ContainsSubstring("manual operation 77"));
}

TEST_CASE("the process knows what is in flight in every engine") {
  asio::io_context io;
  manual_source source(io);
  CHECK(cohort::process::describe_in_flight().empty());
  source.start(42, [](std::error_code) {});
  CHECK_THAT(cohort::process::describe_in_flight(),
             Catch::Matchers::ContainsSubstring("manual operation 42"));
  CHECK(cohort::process::drain_all(1s));  // a receive: given up
  CHECK(cohort::process::describe_in_flight().empty());
  io.run();
}

TEST_CASE("coroutines that start their next operation when the last completes share the engine") {
  asio::io_context io;
  manual_source source(io);
  const auto loop = [&](int id) -> task {
    for (int i = 0; i < 10000; ++i) {
      auto one = source.start(id, cohort::as_future);
      source.complete(id);
      co_await std::move(one);
    }
  };
  for (int id = 0; id < 4; ++id) asio::co_spawn(io, loop(id), asio::detached);
  io.run();
  CHECK(engine_stats(io).completions == 40000);
}
