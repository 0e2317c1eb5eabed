// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Plain code waits for collectives.

#include <cohort/collectives.hpp>
#include <cohort/comm.hpp>
#include <cohort/progress/future.hpp>

#include <system_error>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace sync_wait_test {

using cohort::as_future;
using cohort::communicator;
using cohort::sync_wait;
namespace op = cohort::op;

asio::awaitable<int> sum_of_ranks(communicator world) {
  const int mine = world.rank() + 1;
  int sum = 0;
  co_await cohort::all_reduce(world, mine, sum, op::sum);
  co_return sum;
}

std::error_code end_of(const communicator& on, asio::awaitable<void> work) {
  try {
    sync_wait(on, std::move(work));
  } catch (const std::system_error& why) {
    return why.code();
  }
  return {};
}

}  // namespace sync_wait_test

TEST_CASE("plain code waits for collectives", "[collectives]") {
  using namespace sync_wait_test;
  asio::io_context io;
  const communicator world(io);
  const int n = world.size();
  const int sum = n * (n + 1) / 2;
  // More than it takes until shared memory is open; ranks that wait at once and later.
  for (int i = 0; i < 60; ++i) {
    if ((i + world.rank()) % 3 == 0) {
      int total = world.rank() + 1;
      auto started = cohort::all_reduce(world, total, op::sum, as_future);
      cohort::poll(world);
      sync_wait(world, std::move(started));
      CHECK(total == sum);
    } else {
      CHECK(sync_wait(world, sum_of_ranks(world)) == sum);
    }
  }
  std::vector<double> x(1000, 1.0);
  auto pending = cohort::all_reduce(world, x, op::sum, as_future);
  sync_wait(world, cohort::barrier(world));
  sync_wait(world, std::move(pending));
  CHECK(x == std::vector<double>(1000, n));
}

TEST_CASE("sync_wait throws what the operation fails with", "[collectives]") {
  using namespace sync_wait_test;
  asio::io_context io;
  const communicator world(io);
  int value = 1;
  CHECK(end_of(world, cohort::broadcast(world, value, world.size())) == cohort::errc::bad_root);
  CHECK(end_of(communicator(), cohort::barrier(world)) == cohort::errc::invalid_communicator);
  CHECK(end_of(world, cohort::barrier(world)) == std::error_code());
}
