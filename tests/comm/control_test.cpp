// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include <cohort/comm/channel.hpp>
#include <cohort/comm/creation.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/progress/doorbell.hpp>
#include <cohort/progress/future.hpp>

#include "support/catch.hpp"
#include "support/world.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <system_error>

using namespace std::chrono_literals;
using namespace cohort_test;

namespace {

class listener final : public cohort::comm::mailbox::owner {
 public:
  int messages = 0;

 private:
  void received(int, unsigned, std::span<const std::byte>) override { ++messages; }
  void sent(int, std::error_code) override {}
  void failed(int, std::error_code) override {}
};

}  // namespace

TEST_CASE("a rank that is awake is not rung, for its flag is seen") {
  asio::io_context io;
  const cohort::communicator world(io);
  const auto mine = std::make_shared<listener>();
  const auto box =
      std::make_shared<cohort::comm::mailbox>(world, cohort::comm::channel_options{.tag = 1});
  run(io, [&]() -> asio::awaitable<void> {
    box->open(mine);
    int never = 0;
    auto awake = cohort::recv(world, never, cohort::any_source, 2, cohort::as_future);
    // When they meet again, each has looked since it had slept.
    for (int i = 0; i < 2; ++i) co_await meet(world);
    const auto before = cohort::engine_stats(io).rings;
    constexpr int count = 20;
    for (int i = 0; i < count; ++i) box->send_at_once(right_of(world), 0, {});
    while (mine->messages < count) co_await pause(1ms);
    CHECK(cohort::engine_stats(io).rings == before);
    co_await meet(world);
    box->close();
    awake.cancel();
    const auto code = co_await code_of(std::move(awake));
    CHECK(code == asio::error::operation_aborted);
  }());
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
