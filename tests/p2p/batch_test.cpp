// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Batches: several messages as one, whoever waits for them and however they end.

#include <cohort/comm.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p.hpp>
#include <cohort/p2p/batch.hpp>
#include <cohort/progress.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "p2p/support.hpp"

namespace {

using namespace p2p_test;

/// A halo in a ring: `n` messages to each side, each of a number and its double.
struct halo {
  halo(const communicator& on, std::size_t n, bool persistent)
      : world(on), from_left(n), from_right(n), to_left(n), to_right(n), messages(on) {
    for (std::size_t i = 0; i < n; ++i) {
      messages.recv(from_left[i], left_of(world), tag(i));
      messages.recv(from_right[i], right_of(world), tag(i) + 1);
    }
    for (std::size_t i = 0; i < n; ++i) {
      messages.send(to_right[i], right_of(world), tag(i));
      messages.send(to_left[i], left_of(world), tag(i) + 1);
    }
    if (persistent) messages.persistent();
  }

  using pair = std::array<int, 2>;
  static int tag(std::size_t i) { return 100 + 2 * static_cast<int>(i); }
  [[nodiscard]] pair value(int rank, std::size_t i, int side) const {
    const int v = 1000 * rank + 10 * static_cast<int>(i) + side + 100000 * step;
    return {v, 2 * v};
  }
  void fill() {
    ++step;
    for (std::size_t i = 0; i < to_left.size(); ++i) {
      to_left[i] = value(world.rank(), i, 0);
      to_right[i] = value(world.rank(), i, 1);
    }
  }
  void check() const {
    for (std::size_t i = 0; i < to_left.size(); ++i) {
      CAPTURE(i, step);
      CHECK(from_left[i] == value(left_of(world), i, 1));
      CHECK(from_right[i] == value(right_of(world), i, 0));
      const cohort::status first = messages.status(2 * i);
      CHECK(first.source() == left_of(world));
      CHECK(first.tag() == tag(i));
      CHECK(first.count<int>() == 2);
      CHECK_FALSE(messages.error(2 * i));
    }
  }

  communicator world;
  std::vector<pair> from_left, from_right, to_left, to_right;
  cohort::batch messages;
  int step = 0;
};

/// A message to whoever receives with this tag.
cohort::future<> sent(const communicator& world, const std::vector<int>& what, int to, int tag) {
  return cohort::send(world, what, to, tag, cohort::as_future);
}

}  // namespace

TEST_CASE("a batch is awaited again and again, by every style, persistent or not") {
  const bool persistent = GENERATE(false, true);
  const std::size_t n = GENERATE(1, 3, 25);  // 100 messages
  CAPTURE(persistent, n);
  on_world([&](communicator world) -> task {
    halo mine(world, n, persistent);
    CHECK(mine.messages.size() == 4 * n);
    for (int i = 0; i < 3; ++i) {
      mine.fill();
      co_await mine.messages.run();
      mine.check();

      mine.fill();
      auto [failed] = co_await mine.messages.run(cohort::as_tuple);
      CHECK_FALSE(failed);
      mine.check();

      mine.fill();
      auto future = mine.messages.run(cohort::as_future);
      co_await std::move(future);
      mine.check();

      mine.fill();
      mine.messages.start();
      for (int part = 0; part < 3; ++part) cohort::poll(world);
      co_await mine.messages.finish();
      mine.check();

      mine.fill();
      std::optional<std::error_code> called;
      mine.messages.run([&](std::error_code error) { called = error; });
      CHECK_FALSE(called);
      while (!called) co_await asio::post(asio::use_awaitable);
      CHECK_FALSE(*called);
      mine.check();

      mine.fill();
      mine.messages.start();
      auto finished = mine.messages.finish(cohort::as_future);
      std::vector<cohort::future<>> all;
      all.push_back(std::move(finished));
      co_await cohort::when_all(std::move(all));
      mine.check();
    }
  });
}

TEST_CASE("a batch blocks, and is waited for, in code that is no coroutine") {
  const bool persistent = GENERATE(false, true);
  asio::io_context io;
  communicator world(io);
  {
    halo mine(world, 3, persistent);
    for (int i = 0; i < 3; ++i) {
      mine.fill();
      mine.messages.run(cohort::blocking);
      mine.check();

      mine.fill();
      mine.messages.start();
      cohort::poll(world);
      mine.messages.finish(cohort::blocking);
      mine.check();

      mine.fill();
      cohort::sync_wait(world, mine.messages.run());
      mine.check();

      mine.fill();
      cohort::sync_wait(world, mine.messages.run(cohort::as_future));
      mine.check();
    }
  }
  io.run();
}

TEST_CASE("a batch is run with a thread that runs the loop") {
  if (cohort::mpi::level() < cohort::thread_level::serialized) return;
  cohort::progress_thread background;
  communicator world(background.context());
  halo mine(world, 2, true);
  for (int i = 0; i < 20; ++i) {
    mine.fill();
    mine.messages.run(cohort::blocking);
    mine.check();
    mine.fill();
    mine.messages.run(asio::use_future).get();
    mine.check();
    mine.fill();
    mine.messages.start();
    mine.messages.finish(cohort::blocking);
    mine.check();
  }
}

TEST_CASE("a batch without messages is complete, not inside of the call") {
  on_world([](communicator world) -> task {
    cohort::batch nothing(world);
    CHECK(nothing.empty());
    co_await nothing.run();
    co_await nothing.finish();
    nothing.start();
    CHECK_FALSE(nothing.is_in_flight());
    co_await nothing.finish();
    bool called = false;
    nothing.run([&](std::error_code error) { called = !error; });
    CHECK_FALSE(called);
    while (!called) co_await asio::post(asio::use_awaitable);
  });
}

TEST_CASE("one message to the rank itself, and messages to nobody") {
  const bool persistent = GENERATE(false, true);
  on_world([&](communicator world) -> task {
    const double out = 1.5;
    double in = 0;
    cohort::batch messages(world);
    if (persistent) messages.persistent();
    messages.recv(in, cohort::any_source, cohort::any_tag);
    messages.send(out, world.rank(), 3);
    messages.send(out, cohort::no_rank, 4);
    messages.recv(in, cohort::no_rank, 4);
    for (int i = 0; i < 2; ++i) {
      in = 0;
      co_await messages.run();
      CHECK(in == 1.5);
      CHECK(messages.status(0).source() == world.rank());
      CHECK(messages.status(0).tag() == 3);
      CHECK(messages.status(0).count<double>() == 1);
      CHECK(messages.status(1).bytes() == 0);
      CHECK(messages.status(3).source() == cohort::no_rank);
      CHECK(messages.status(3).tag() == cohort::any_tag);
    }
    cohort::batch alone(world);
    alone.send(out, cohort::no_rank, 4);
    co_await alone.run();
  });
}

TEST_CASE("strided views and spans travel in a batch, and stay where they are") {
  const bool persistent = GENERATE(false, true);
  on_world([&](communicator world) -> task {
    std::vector<double> matrix(6 * 5);
    for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<double>(i);
    std::vector<double> column(6), copy(6 * 5, -1);
    cohort::batch messages(world);
    if (persistent) messages.persistent();
    messages.recv(std::span<double>(column), left_of(world), 1);
    messages.recv(cohort::strided_view(&copy[2], 6, 1, 5), left_of(world), 2);
    messages.send(cohort::strided_view(&matrix[4], 6, 1, 5), right_of(world), 1);
    messages.send(cohort::strided_view(&matrix[1], 6, 1, 5), right_of(world), 2);
    for (int i = 0; i < 3; ++i) {
      co_await messages.run();
      CHECK(column == std::vector<double>{4, 9, 14, 19, 24, 29});
      for (std::size_t row = 0; row < 6; ++row) {
        CHECK(copy[5 * row + 2] == matrix[5 * row + 1]);
        CHECK(copy[5 * row + 1] == -1);
      }
    }
  });
}

TEST_CASE("messages are added to a batch that has run, and it is emptied") {
  const bool persistent = GENERATE(false, true);
  on_world([&](communicator world) -> task {
    std::vector<int> in(40, -1), out(40);
    cohort::batch messages(world);
    if (persistent) messages.persistent();
    for (int i = 0; i < 40; ++i) {
      out[i] = i + world.rank();
      messages.recv(in[i], left_of(world), i);
      messages.send(out[i], right_of(world), i);
      if (i % 10 == 0) co_await messages.run();
    }
    co_await messages.run();
    for (int i = 0; i < 40; ++i) CHECK(in[i] == i + left_of(world));
    messages.clear();
    CHECK(messages.empty());
    co_await messages.run();
    messages.send(out[0], right_of(world), 50);
    messages.recv(in[0], left_of(world), 50);
    co_await messages.run();
    cohort::batch moved(std::move(messages));
    in[0] = -1;
    co_await moved.run();
    CHECK(in[0] == left_of(world));
  });
}

TEST_CASE("a bad rank or tag is found before anything is posted, and named with its index") {
  on_world([](communicator world) -> task {
    const cohort::log::capture logged;
    const std::string rank = "rank " + std::to_string(world.rank());
    const int out = 1;
    std::array<int, 3> in{};
    cohort::batch messages(world);
    messages.recv(in, left_of(world), 1);
    messages.send(out, 1000, 7);
    messages.send(out, right_of(world), -5);
    const auto code = co_await code_of(messages.run());
    CHECK(code == cohort::errc::bad_rank);
    CHECK_FALSE(messages.is_in_flight());
    CHECK(world.last_failure().text.find(
              rank + ": batch #0: message=1, destination=1000, tag=7, count=1: ") == 0);
    messages.start();
    CHECK_FALSE(messages.is_in_flight());
    const auto again = co_await code_of(messages.finish());
    CHECK(again == cohort::errc::bad_rank);

    messages.clear();
    messages.recv(in, cohort::any_source, cohort::any_tag);
    messages.send(out, right_of(world), -5);
    const auto tag = co_await code_of(messages.run());
    CHECK(tag == cohort::errc::bad_tag);
    CHECK(logged.contains("message=1, destination=" + std::to_string(right_of(world)) +
                          ", tag=-5, count=1"));
    messages.clear();
    messages.send(out, cohort::any_source, 1);
    const auto wild = co_await code_of(messages.run());
    CHECK(wild == cohort::errc::bad_rank);

    std::string what;
    try {
      co_await messages.run();
    } catch (const std::system_error& problem) {
      what = problem.what();
    }
    CHECK(what.find("batch #0: message=0") != std::string::npos);
  });
}

TEST_CASE("a message that is too long is named with its index; the others arrive") {
  const auto level = GENERATE(cohort::checks::local, cohort::checks::bounds);
  const bool persistent = GENERATE(false, true);
  on_world(
      [&](communicator world) -> task {
        const cohort::log::capture logged;
        const std::vector<int> one{7}, three{1, 2, 3};
        std::vector<cohort::future<>> others;
        others.push_back(sent(world, one, right_of(world), 1));
        others.push_back(sent(world, three, right_of(world), 2));
        others.push_back(sent(world, one, right_of(world), 3));
        std::array<int, 3> in{};
        cohort::batch messages(world);
        if (persistent) messages.persistent();
        for (int i = 0; i < 3; ++i) messages.recv(in[i], left_of(world), i + 1);
        const auto code = co_await code_of(messages.run());
        if (level == cohort::checks::bounds) {
          CHECK(code == cohort::errc::message_too_long);
          CHECK(logged.contains("message.bytes=12"));
        } else {
          CHECK(cohort::mpi::error_class(code) == MPI_ERR_TRUNCATE);
        }
        CHECK(messages.error(1) == code);
        CHECK_FALSE(messages.error(0));
        CHECK_FALSE(messages.error(2));
        CHECK(logged.contains("message=1, source=" + std::to_string(left_of(world)) +
                              ", tag=2, count=1"));
        CHECK(in[0] == 7);
        CHECK(in[2] == 7);
        CHECK(messages.status(2).tag() == 3);
        co_await cohort::when_all(std::move(others));
        const auto same = co_await code_of(messages.finish());
        CHECK(same == code);

        co_await meet(world);
        const int fine = world.rank();
        for (int i = 0; i < 3; ++i) messages.send(fine, right_of(world), i + 1);
        co_await messages.run();
        CHECK(in == std::array<int, 3>{left_of(world), left_of(world), left_of(world)});
      },
      {.checks = level});
}

TEST_CASE("with bounds a batch looks at sizes first, whoever comes") {
  on_world(
      [](communicator world) -> task {
        halo mine(world, 5, true);
        for (int i = 0; i < 3; ++i) {
          mine.fill();
          co_await mine.messages.run();
          mine.check();
        }
        const std::array<char, 5> odd{};
        int in = 0;
        cohort::batch messages(world);
        messages.recv(in, left_of(world), 1);
        messages.send(odd, right_of(world), 1);
        const auto code = co_await code_of(messages.run());
        CHECK(code == cohort::errc::message_too_long);
      },
      {.checks = cohort::checks::bounds});
}

TEST_CASE("a deadline gives the receives of a batch up, and it runs again") {
  const bool persistent = GENERATE(false, true);
  const auto level = GENERATE(cohort::checks::local, cohort::checks::bounds);
  on_world(
      [&](communicator world) -> task {
        std::array<int, 3> in{-1, -1, -1};
        const int out = world.rank();
        const int left = left_of(world);
        cohort::batch messages(world);
        if (persistent) messages.persistent();
        messages.recv(in[0], left, 1);
        messages.recv(in[1], left, 2);
        messages.send(out, right_of(world), 3);  // it ends when it is received, elsewhere
        for (int round = 0; round < 3; ++round) {
          auto taken = cohort::recv(world, in[2], left, 3, cohort::as_future);
          std::error_code code;
          if (round == 0) {
            code = co_await code_of(cohort::with_deadline(messages.run(), 20ms));
          } else if (round == 1) {
            messages.start();
            code = co_await code_of(cohort::with_deadline(messages.finish(), 20ms));
          } else {
            auto future = messages.run(cohort::as_future);
            future.cancel();
            code = co_await code_of(std::move(future));
          }
          const bool by_deadline = round < 2;
          CHECK((by_deadline ? code == cohort::errc::deadline_exceeded
                             : code == asio::error::operation_aborted));
          CHECK_FALSE(messages.is_in_flight());
          CHECK(messages.error(0) == asio::error::operation_aborted);
          CHECK(messages.error(1) == asio::error::operation_aborted);
          CHECK_FALSE(messages.error(2));
          co_await std::move(taken);
          CHECK(in == std::array<int, 3>{-1, -1, left});
        }
        co_await meet(world);
        const std::vector<int> rest{out};
        std::vector<cohort::future<>> others;
        others.push_back(sent(world, rest, right_of(world), 1));
        others.push_back(sent(world, rest, right_of(world), 2));
        others.push_back(cohort::recv(world, in[2], left, 3, cohort::as_future));
        co_await messages.run();
        co_await cohort::when_all(std::move(others));
        CHECK(in == std::array<int, 3>{left, left, left});
      },
      {.checks = level});
}

TEST_CASE("a batch that is dropped in flight gives its receives up and waits for its sends") {
  const bool persistent = GENERATE(false, true);
  const bool waited_for = GENERATE(false, true);
  on_world([&](communicator world) -> task {
    // What is sent to the rank itself may be complete only when it is received.
    std::vector<int> arrived(100, -1);
    auto taken = cohort::recv(world, arrived, left_of(world), 2, cohort::as_future);
    std::optional<std::error_code> called;
    {
      std::vector<int> in(100, -1), out(100, world.rank());
      cohort::batch messages(world);
      if (persistent) messages.persistent();
      messages.recv(in, left_of(world), 1);
      messages.recv(in[0], cohort::no_rank, 1);
      messages.send(out, right_of(world), 2);
      messages.start();
      CHECK(messages.is_in_flight());
      if (waited_for) messages.finish([&](std::error_code error) { called = error; });
    }
    if (waited_for) {
      while (!called) co_await asio::post(asio::use_awaitable);
      CHECK(*called == asio::error::operation_aborted);
    }
    co_await std::move(taken);
    CHECK(arrived[99] == left_of(world));
    co_await meet(world);
  });
}

TEST_CASE("a future of a batch that is dropped leaves the batch idle") {
  on_world([](communicator world) -> task {
    int in = -1;
    const int out = world.rank();
    cohort::batch messages(world);
    messages.recv(in, left_of(world), 1);
    {
      const auto dropped = messages.run(cohort::as_future);
      CHECK(messages.is_in_flight());
    }
    CHECK_FALSE(messages.is_in_flight());
    CHECK(messages.error(0) == asio::error::operation_aborted);
    co_await meet(world);
    messages.send(out, right_of(world), 1);
    co_await messages.run();
    CHECK(in == left_of(world));
  });
}

TEST_CASE("a batch goes with the context while it is in flight") {
  const bool persistent = GENERATE(false, true);
  const bool awaits = GENERATE(false, true);
  {
    asio::io_context io;
    communicator world(io);
    asio::co_spawn(
        io,
        [](communicator on, bool keeps, bool waits) -> task {
          std::array<int, 2> in{};
          cohort::batch messages(on);
          if (keeps) messages.persistent();
          messages.recv(in[0], left_of(on), 1);
          messages.recv(in[1], left_of(on), 2);
          messages.start();
          if (waits) co_await messages.finish();
          asio::steady_timer never(co_await asio::this_coro::executor, 24h);
          co_await never.async_wait(asio::use_awaitable);
        }(world, persistent, awaits),
        asio::detached);
    io.run_for(5ms);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("what does not fit the state of a batch is refused") {
  on_world([](communicator world) -> task {
    const cohort::log::capture logged;
    int in = -1;
    cohort::batch messages(world);
    messages.recv(in, left_of(world), 1);
    messages.start();
    CHECK_THROWS_AS(messages.start(), cohort::error);
    CHECK_THROWS_AS(messages.clear(), cohort::error);
    CHECK_THROWS_AS(messages.persistent(), cohort::error);
    CHECK_THROWS_AS(messages.recv(in, left_of(world), 2), cohort::error);
    CHECK_THROWS_AS(messages.status(0), cohort::error);
    const auto running = co_await code_of(messages.run());
    CHECK(running == cohort::errc::invalid_argument);
    CHECK(logged.contains("in flight already"));
    auto first = messages.finish(cohort::as_future);
    const auto second = co_await code_of(messages.finish());
    CHECK(second == cohort::errc::invalid_argument);
    co_await meet(world);
    const std::vector<int> out{world.rank()};
    auto other = sent(world, out, right_of(world), 1);
    co_await std::move(first);
    co_await std::move(other);
    CHECK(in == left_of(world));
    CHECK_THROWS_AS(messages.status(1), cohort::error);

    cohort::batch none{communicator()};
    none.recv(in, 0, 1);
    none.start();
    const auto code = co_await code_of(none.finish());
    CHECK(code == cohort::errc::invalid_communicator);
    const auto also = co_await code_of(none.run());
    CHECK(also == cohort::errc::invalid_communicator);
  });
}

TEST_CASE("batches of several coroutines, and a batch of a communicator that has gone") {
  on_world([](communicator world) -> task {
    std::vector<asio::awaitable<void>> all;
    for (int i = 0; i < 4; ++i) {
      all.push_back([](communicator on, bool persistent, int shift) -> task {
        int in = -1;
        const int out = on.rank() + shift;
        cohort::batch messages(on);
        if (persistent) messages.persistent();
        messages.recv(in, left_of(on), 500 + shift);
        messages.send(out, right_of(on), 500 + shift);
        for (int round = 0; round < 20; ++round) {
          in = -1;
          co_await messages.run();
          CHECK(in == left_of(on) + shift);
        }
      }(world, i % 2 == 0, i));
    }
    co_await cohort::when_all(std::move(all));

    std::optional<cohort::batch> kept;
    int in = -1;
    const int out = world.rank();
    {
      const communicator other = co_await world.dup();
      kept.emplace(other);
      kept->persistent();
      kept->recv(in, left_of(other), 1);
      kept->send(out, right_of(other), 1);
    }
    co_await kept->run();
    CHECK(in == left_of(world));
  });
}
