// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include <cohort/comm/control.hpp>
#include <cohort/comm/creation.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/progress/doorbell.hpp>
#include <cohort/progress/future.hpp>

#include "support/catch.hpp"
#include "support/world.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <system_error>

using namespace std::chrono_literals;
using namespace cohort_test;

namespace {

/// Keeps one control receive posted, and counts what came.
struct listener {
  cohort::communicator world;
  std::span<std::byte> buffer;
  int messages = 0;

  void listen() {
    cohort::comm::control_recv(world, buffer, cohort::any_source, 1,
                               [this](std::error_code error, cohort::status) {
                                 if (error) return;
                                 ++messages;
                                 listen();
                               });
  }
};

}  // namespace

TEST_CASE("an engine that only has control receives makes no lap until its doorbell rings") {
  std::array<std::byte, 8> buffer{};  // the receive is posted until the context goes
  asio::io_context io;
  cohort::communicator world(io);
  listener mine{world, buffer};
  mine.listen();
  run(io, [](listener& here, asio::io_context& loop) -> asio::awaitable<void> {
    cohort::communicator everybody = here.world;
    const std::array<std::byte, 8> message{};
    for (int expected = 1; expected <= 3; ++expected) {
      co_await meet(everybody);
      co_await cohort::comm::control_send(everybody, message, right_of(everybody), 1,
                                          asio::use_awaitable);
      for (int waited = 0; waited < 10'000 && here.messages < expected; ++waited) {
        co_await pause(1ms);
      }
      CHECK(here.messages == expected);
      co_await meet(everybody);
      co_await until_it_sleeps(loop);
    }
  }(mine, io));
  // That run() has returned shows the rest: a posted control receive keeps nothing alive.
}

TEST_CASE("a rank that is awake is not rung, for its flag is seen") {
  std::array<std::byte, 8> buffer{};
  asio::io_context io;
  cohort::communicator world(io);
  listener mine{world, buffer};
  mine.listen();
  run(io, [](listener& here, asio::io_context& loop) -> asio::awaitable<void> {
    const cohort::communicator everybody = here.world;
    int never = 0;
    auto awake = cohort::recv(everybody, never, cohort::any_source, 2, cohort::as_future);
    // When they meet again, each has looked since it had slept.
    for (int i = 0; i < 2; ++i) co_await meet(everybody);
    const auto before = cohort::engine_stats(loop).rings;
    constexpr int count = 20;
    const std::array<std::byte, 8> message{};
    for (int i = 0; i < count; ++i) {
      co_await cohort::comm::control_send(everybody, message, right_of(everybody), 1,
                                          asio::use_awaitable);
    }
    while (here.messages < count) co_await pause(1ms);
    CHECK(cohort::engine_stats(loop).rings == before);
    co_await meet(everybody);
    awake.cancel();
    const auto code = co_await code_of(std::move(awake));
    CHECK(code == asio::error::operation_aborted);
  }(mine, io));
}

TEST_CASE("a creation goes on while only another context of its thread is run") {
  auto& turn = cohort::comm::creation_turn::of_process();
  asio::io_context still;
  asio::io_context runs;
  const cohort::communicator one(still);
  const cohort::communicator two(runs);
  // Rank 1 is in another creation, so rank 0 has its turn and waits for that of rank 1.
  const char other = 0;
  if (one.rank() == 1) REQUIRE(turn.try_take(&other));
  bool one_made = false;
  one.dup([&](std::error_code why, const cohort::communicator& made) { one_made = !why && made; });
  while (one.rank() == 0 && turn.try_take(&other)) {
    turn.give_back(&other);
    still.poll();
  }
  MPI_Request seen = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &seen);
  for (int done = 0; done == 0; MPI_Test(&seen, &done, MPI_STATUS_IGNORE)) {
    if (one.rank() != 0) still.poll();
  }
  turn.give_back(&other);
  bool two_made = false;
  two.dup([&](std::error_code why, const cohort::communicator& made) { two_made = !why && made; });
  runs.run();
  CHECK(two_made);
  still.run();
  CHECK(one_made);
}
