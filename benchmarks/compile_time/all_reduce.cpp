// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// One collective with its own header, and what verbs that await need.

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/comm/operation.hpp>

asio::awaitable<void> reduce(cohort::communicator world) {
  double value = world.rank();
  co_await cohort::all_reduce(world, value, cohort::op::sum);
}

#ifdef WHOLE_PROGRAM
int main() {
  asio::io_context io;
  cohort::communicator world(io);
  asio::co_spawn(io, reduce(world), asio::detached);
  io.run();
}
#endif
