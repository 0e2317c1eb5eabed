// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Futures that are dropped, moved, sliced, cancelled and destroyed, from the loop's thread and from
// others.

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>

#include <asio/experimental/awaitable_operators.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace {

using cohort::communicator;
using namespace std::chrono_literals;

/// A buffer that says whether somebody wrote to it after its death: the sanitizer, if it did.
using buffer = std::unique_ptr<std::vector<double>>;
buffer ones(std::size_t n = 5000) { return std::make_unique<std::vector<double>>(n, 1.0); }

/// A coroutine of another library: starts at once, and is destroyed by its owner.
struct foreign {
  struct promise_type {
    foreign get_return_object() {
      return foreign(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { failed = std::current_exception(); }
    std::exception_ptr failed;
  };
  explicit foreign(std::coroutine_handle<promise_type> frame) : handle(frame) {}
  foreign(foreign&&) = delete;
  ~foreign() { handle.destroy(); }
  std::coroutine_handle<promise_type> handle;
};

TEST_CASE("a dropped future waits for MPI, and its operation leaves the dead buffer alone") {
  asio::io_context io;
  const communicator world{io};
  for (int looks = 0; looks < 4; ++looks) {
    auto numbers = ones();
    {
      const auto sum = cohort::all_reduce(world, *numbers, cohort::op::average, cohort::as_future);
      for (int i = 0; i < looks; ++i) cohort::poll(world);
    }
    numbers.reset();
  }
  io.run();
}

TEST_CASE("a dropped future of a receive gives the receive up") {
  asio::io_context io;
  const communicator self{io, MPI_COMM_SELF};
  const bool unknown_size = GENERATE(false, true);
  const auto before = std::chrono::steady_clock::now();
  if (unknown_size) {
    static_cast<void>(cohort::recv<std::vector<int>>(self, 0, 1, cohort::as_future));
  } else {
    auto number = std::make_unique<int>();
    static_cast<void>(cohort::recv(self, *number, 0, 1, cohort::as_future));
  }
  if (unknown_size) cohort::use_engine(io).leave(1s);
  io.run();
  CHECK(std::chrono::steady_clock::now() - before < 5s);
}

TEST_CASE("a future behind an adapter has the same duty when it is dropped") {
  asio::io_context other;
  asio::cancellation_signal signal;
  {
    asio::io_context io;
    const communicator self{io, MPI_COMM_SELF};
    const communicator world{io};
    const auto drop = [&](auto token) {
      auto number = std::make_unique<int>();
      static_cast<void>(cohort::recv(self, *number, 0, 1, token));
      auto numbers = ones();
      static_cast<void>(cohort::all_reduce(world, *numbers, cohort::op::average, token));
      number.reset();
      numbers.reset();
      const int value = 1;  // comes too late for the receive
      cohort::send(self, value, 0, 1, asio::detached);
      int taken = 0;
      cohort::recv(self, taken, 0, 1, asio::detached);
      io.restart();
      io.run();
      CHECK(taken == 1);
    };
    std::error_code error;
    drop(cohort::as_future);
    drop(cohort::as_tuple(cohort::as_future));
    drop(asio::redirect_error(cohort::as_future, error));
    drop(asio::bind_executor(other.get_executor(), cohort::as_future));
    drop(asio::bind_cancellation_slot(signal.slot(), cohort::as_future));
  }
  other.run();
  signal.emit(asio::cancellation_type::terminal);  // finds nothing
}

TEST_CASE("moving and assigning futures keeps every frame") {
  asio::io_context io;
  const communicator world{io};
  auto a = ones();
  auto b = ones();
  auto first = cohort::all_reduce(world, *a, cohort::op::sum, cohort::as_future);
  auto second = cohort::all_reduce(world, *b, cohort::op::sum, cohort::as_future);
  auto third = std::move(first);
  CHECK_FALSE(first.valid());
  CHECK(third.valid());
  first = std::move(second);
  third = std::move(first);  // what third held is waited for when `first` goes
  std::vector<cohort::future<>> many;
  many.push_back(std::move(third));
  many.push_back(std::move(first));
  asio::co_spawn(io, cohort::when_all(std::move(many)), cohort::rethrow);
  io.run();
  CHECK((*a)[7] == world.size());
  CHECK((*b)[7] == world.size());
}

TEST_CASE("a future sliced into co_spawn is awaited there") {
  asio::io_context io;
  const communicator world{io};
  auto numbers = ones();
  auto sum = cohort::all_reduce(world, *numbers, cohort::op::sum, cohort::as_future);
  bool done = false;
  asio::co_spawn(io, std::move(sum), [&](std::exception_ptr failed) { done = !failed; });
  io.run();
  CHECK(done);
  CHECK((*numbers)[0] == world.size());
}

TEST_CASE("a future sliced into a coroutine that is never run waits when that is dropped") {
  const communicator* outer = nullptr;
  asio::io_context io;
  const communicator world{io};
  outer = &world;
  auto numbers = ones();
  {
    asio::awaitable<void> sliced =
        cohort::all_reduce(*outer, *numbers, cohort::op::average, cohort::as_future);
  }
  numbers.reset();
  io.run();
}

TEST_CASE("futures sliced into && and || are awaited there") {
  using namespace asio::experimental::awaitable_operators;
  asio::io_context io;
  const communicator world{io};
  auto a = ones();
  auto b = ones();
  double number = 0;
  bool ended = false;
  const auto body = [&]() -> asio::awaitable<void> {
    auto first = cohort::all_reduce(world, *a, cohort::op::sum, cohort::as_future);
    auto second = cohort::all_reduce(world, *b, cohort::op::sum, cohort::as_future);
    co_await (std::move(first) && std::move(second));
    // The timer wins, so the receive is cancelled.
    auto never = cohort::recv(world, number, world.rank(), 99, cohort::as_future);
    asio::steady_timer timer(io, 1ms);
    auto either = co_await (std::move(never) || timer.async_wait(asio::use_awaitable));
    CHECK(either.index() == 1);
    // The sum cannot be given up: the buffer is borrowed.
    auto third = cohort::all_reduce(world, *a, cohort::op::sum, cohort::as_future);
    timer.expires_after(0ms);
    co_await (std::move(third) || timer.async_wait(asio::use_awaitable));
    ended = true;
  };
  asio::co_spawn(io, body(), cohort::rethrow);
  io.run();
  CHECK(ended);
  CHECK((*b)[0] == world.size());
}

TEST_CASE("an exception between start and await waits for what was started") {
  asio::io_context io;
  const communicator world{io};
  bool caught = false;
  const auto body = [&]() -> asio::awaitable<void> {
    try {
      std::vector<double> gradient(20'000, 1.0);
      auto sum = cohort::all_reduce(world, gradient, cohort::op::average, cohort::as_future);
      throw std::runtime_error("between start and await");
    } catch (const std::runtime_error&) {
      caught = true;
    }
    co_await asio::post(asio::use_awaitable);
  };
  asio::co_spawn(io, body(), cohort::rethrow);
  io.run();
  CHECK(caught);
}

TEST_CASE("every exception on its way has the whole time to wait for MPI") {
  asio::io_context io;
  cohort::engine_options options;
  options.drain_after_failure = 1500ms;  // less than the rounds take together
  cohort::use_engine(io, options);
  const communicator world{io};
  const auto body = [&]() -> asio::awaitable<void> {
    for (int round = 0; round < 4; ++round) {
      try {
        std::vector<double> numbers(100, 1.0);
        if (world.rank() == world.size() - 1) std::this_thread::sleep_for(50ms);
        auto sum = cohort::all_reduce(world, numbers, cohort::op::average, cohort::as_future);
        throw std::runtime_error("again");
      } catch (const std::runtime_error&) {
      }
      asio::steady_timer timer(io, 800ms);
      co_await timer.async_wait(asio::use_awaitable);
    }
  };
  asio::co_spawn(io, body(), cohort::rethrow);
  io.run();
}

TEST_CASE("when_all that is cancelled waits for collectives and gives receives up") {
  asio::io_context io;
  const communicator world{io};
  std::array<double, 4> numbers{1, 1, 1, 1};
  std::array<double, 3> never{};
  std::exception_ptr failed;
  const auto body = [&]() -> asio::awaitable<void> {
    std::vector<cohort::future<>> futures;
    for (double& each : numbers) {
      futures.push_back(cohort::all_reduce(world, each, cohort::op::sum, cohort::as_future));
    }
    std::vector<cohort::future<cohort::status>> receives;
    for (double& each : never) {
      receives.push_back(cohort::recv(world, each, world.rank(), 5, cohort::as_future));
    }
    co_await cohort::when_all(std::move(futures));
    co_await cohort::with_deadline(cohort::when_all(std::move(receives)), 5ms);
  };
  asio::co_spawn(io, body(), [&](std::exception_ptr why) { failed = why; });
  io.run();
  CHECK(numbers == std::array<double, 4>{1.0 * world.size(), 1.0 * world.size(), 1.0 * world.size(),
                                         1.0 * world.size()});
  REQUIRE(failed);
  CHECK_THROWS_AS(std::rethrow_exception(failed), cohort::deadline_error);
}

TEST_CASE("when_all of awaitables passes cancellation on to all") {
  asio::io_context io;
  const communicator world{io};
  std::array<double, 5> never{};
  std::exception_ptr failed;
  const auto body = [&]() -> asio::awaitable<void> {
    std::vector<asio::awaitable<cohort::status>> receives;
    for (double& each : never) receives.push_back(cohort::recv(world, each, world.rank(), 5));
    co_await cohort::with_deadline(cohort::when_all(std::move(receives)), 5ms);
  };
  asio::co_spawn(io, body(), [&](std::exception_ptr why) { failed = why; });
  io.run();
  REQUIRE(failed);
  CHECK_THROWS_AS(std::rethrow_exception(failed), cohort::deadline_error);
}

TEST_CASE("a cancellation that comes after a future was awaited finds nothing") {
  asio::io_context io;
  const communicator self{io, MPI_COMM_SELF};
  asio::cancellation_signal signal;
  int rounds = 0;
  bool aborted = false;
  const auto body = [&]() -> asio::awaitable<void> {
    double number = 1;
    {
      auto sum = cohort::all_reduce(self, number, cohort::op::sum, cohort::as_future);
      co_await std::move(sum);
    }
    for (;; ++rounds) co_await asio::post(asio::use_awaitable);  // leaves the slot as it is
  };
  asio::co_spawn(io, body(), asio::bind_cancellation_slot(signal.slot(), [&](std::exception_ptr) {
                   aborted = true;
                 }));
  while (rounds < 10) io.run_one();
  signal.emit(asio::cancellation_type::terminal);
  io.run();
  CHECK(aborted);
}

TEST_CASE("the frame of a waiting coroutine may be destroyed in mid-wait") {
  auto numbers = ones();
  SECTION("with the context") {
    asio::io_context io;
    const communicator world{io};
    const auto body = [&]() -> asio::awaitable<void> {
      auto sum = cohort::all_reduce(world, *numbers, cohort::op::average, cohort::as_future);
      co_await std::move(sum);
    };
    asio::co_spawn(io, body(), asio::detached);
    io.poll_one();
  }
  SECTION("by its owner, where it is of another library") {
    asio::io_context io;
    const communicator world{io};
    bool resumed = false;
    const auto body = [](const communicator& comm, std::vector<double>& data,
                         bool& done) -> foreign {
      auto sum = cohort::all_reduce(comm, data, cohort::op::average, cohort::as_future);
      co_await std::move(sum);
      done = true;
    };
    {
      const foreign waiting = body(world, *numbers, resumed);
    }
    numbers.reset();
    io.run();
    CHECK_FALSE(resumed);
  }
  SECTION("or awaits to the end") {
    asio::io_context io;
    const communicator world{io};
    const auto body = [](const communicator& comm, std::vector<double>& data) -> foreign {
      auto sum = cohort::all_reduce(comm, data, cohort::op::average, cohort::as_future);
      co_await std::move(sum);
    };
    const foreign waiting = body(world, *numbers);
    io.run();
    CHECK(waiting.handle.done());
    CHECK((*numbers)[3] == 1.0);
  }
}

TEST_CASE("a future may outlive its context") {
  auto numbers = ones();
  std::optional<cohort::future<>> sum;
  {
    asio::io_context io;
    const communicator world{io};
    sum.emplace(cohort::all_reduce(world, *numbers, cohort::op::sum, cohort::as_future));
  }
  CHECK(sum->is_ready());
  CHECK_THROWS_AS(sum->get(), std::system_error);
}

TEST_CASE("get() on the loop's own thread says that it would never return") {
  asio::io_context io;
  const communicator self{io, MPI_COMM_SELF};
  bool refused = false;
  asio::post(io, [&] {
    double number = 0;
    auto never = cohort::recv(self, number, 0, 1, cohort::as_future);
    try {
      never.get();
    } catch (const std::system_error& error) {
      refused = error.code() == std::errc::resource_deadlock_would_occur;
    }
  });
  io.run();
  CHECK(refused);
}

// ---- several threads -------------------------------------------------------------------------

TEST_CASE("other threads start, wait, cancel and drop while a thread of the loop's own runs") {
  cohort::progress_thread loop;
  std::array<std::optional<communicator>, 3> worlds;
  for (auto& world : worlds) world.emplace(loop.context(), MPI_COMM_SELF);
  std::atomic<int> sums{0};
  std::vector<std::thread> threads;
  for (auto& world : worlds) {
    threads.emplace_back([&world, &sums] {
      for (int round = 0; round < 60; ++round) {
        std::vector<double> numbers(50, 1.0);
        auto sum = cohort::all_reduce(*world, numbers, cohort::op::average, cohort::as_future);
        double never = 0;
        auto receive = cohort::recv(*world, never, 0, 1, cohort::as_future);
        if (round % 3 == 0) {
          sum.get();
          ++sums;
        } else if (round % 3 == 1) {
          cohort::poll(*world);
        }
        if (round % 2 == 0) receive.cancel();
        if (round % 4 == 0) {
          try {
            receive.get();
          } catch (const std::system_error& error) {
            if (error.code() != asio::error::operation_aborted) --sums;
          }
        }
        const communicator copy = *world;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& world : worlds) world.reset();
  loop.join();
  CHECK(sums == 60);
}

TEST_CASE("a coroutine of one context awaits and cancels operations of another") {
  cohort::progress_thread loop;
  const communicator self{loop.context(), MPI_COMM_SELF};
  asio::io_context other;
  int ended = 0;
  const auto body = [&]() -> asio::awaitable<void> {
    for (int round = 0; round < 100; ++round) {
      std::vector<double> numbers(50, 1.0);
      double never = 0;
      co_await cohort::all_reduce(self, numbers, cohort::op::average, cohort::as_future);
      auto receive = cohort::recv(self, never, 0, 1, cohort::as_future);
      cohort::send(self, std::vector<double>{2.0}, 0, 1, asio::detached);
      bool late = false;
      try {
        co_await cohort::with_deadline(std::move(receive), std::chrono::microseconds(round));
        if (never != 2.0) throw std::logic_error("wrong message");
      } catch (const cohort::deadline_error&) {
        late = true;
      }
      if (late) co_await cohort::recv(self, never, 0, 1);
    }
    ++ended;
  };
  asio::co_spawn(other, body(), cohort::rethrow);
  other.run();
  CHECK(ended == 1);
}

}  // namespace
