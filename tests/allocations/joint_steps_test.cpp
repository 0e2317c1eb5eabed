// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Memory that one rank does not get in the middle of what several do together.

#include <cohort/comm.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/engine.hpp>

#include <optional>
#include <system_error>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

void refuse_block_in(long allocations);  // allocations_test.cpp
bool refuses_block();
void refuse_next_block_of(std::size_t bytes);

namespace {

using cohort::communicator;

/// How a communicator was made.
struct making {
  communicator result;
  std::optional<std::error_code> ended;

  void begin(const communicator& over) {
    over.dup([this](std::error_code failed, communicator made) {
      ended = failed;
      result = std::move(made);
    });
  }
};

}  // namespace

TEST_CASE("memory that a rank does not get while communicators are made fails them on all ranks") {
  const cohort::log::capture log;
  asio::io_context io;
  const communicator world(io);
  const int last = world.size() - 1;
  auto& engine = cohort::use_engine(io);
  int refused = 1;
  for (long before = 0; refused != 0; ++before) {
    // Beside each other and in another order on each rank, so that they may have to line up.
    making one;
    making other;
    const communicator left = cohort_test::run(io, world.dup());
    const communicator right = cohort_test::run(io, world.dup());
    const bool turned = world.rank() % 2 != 0;
    one.begin(turned ? right : left);
    other.begin(turned ? left : right);
    if (world.rank() == last) refuse_block_in(before);
    while (engine.pending() != 0) engine.look();
    refused = refuses_block() ? 0 : 1;
    refuse_block_in(-1);
    MPI_Bcast(&refused, 1, MPI_INT, last, MPI_COMM_WORLD);
    io.run();
    io.restart();
    REQUIRE(one.ended);
    REQUIRE(other.ended);
    for (making* each : {turned ? &other : &one, turned ? &one : &other}) {
      const bool fails = static_cast<bool>(*each->ended);
      int failures = fails ? 1 : 0;
      MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      CAPTURE(before);
      CHECK((failures == 0 || failures == world.size()));
      if (fails) CHECK(*each->ended == std::errc::not_enough_memory);
      CHECK(static_cast<bool>(each->result) == !fails);
    }
  }
}

TEST_CASE("a message that its container has no memory for is taken in, and its sender goes on") {
  cohort_test::on_world([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    constexpr std::size_t many = 1'000'000;
    const std::vector<int> data(many, 7);
    if (world.rank() == 0) {
      co_await cohort::send(world, data, 1, 1);
      co_await cohort::send(world, data, 1, 2);
    } else if (world.rank() == 1) {
      refuse_next_block_of(many * sizeof(int));
      const auto code = co_await cohort_test::code_of(cohort::recv<std::vector<int>>(world, 0, 1));
      CHECK(code == std::errc::not_enough_memory);
      const auto got = co_await cohort::recv<std::vector<int>>(world, 0, 2);
      CHECK(std::get<0>(got) == data);
    }
  });
}
