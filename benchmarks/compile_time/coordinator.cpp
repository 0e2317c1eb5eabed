// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A coordinator and one named collective, through the umbrella header.

#include <cohort/cohort.hpp>

asio::awaitable<void> reduce(cohort::communicator world) {
  cohort::coordinator coord(world);
  double value = world.rank();
  co_await coord.all_reduce("value", value, cohort::op::sum);
  co_await coord.shutdown();
}

int main() {
  asio::io_context io;
  cohort::communicator world(io);
  asio::co_spawn(io, reduce(world), asio::detached);
  io.run();
}
