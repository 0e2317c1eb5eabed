// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A value that is sent through a rendezvous and received.

#include <cohort/rendezvous.hpp>

asio::awaitable<void> pass(cohort::communicator world) {
  cohort::rendezvous exchange(world);
  auto step = exchange.step(1);
  const cohort::rendezvous_key key{
      .source = world.rank(), .destination = world.rank(), .name = "value"};
  step.send(key, 1.5);
  co_await step.recv<double>(key);
  co_await step.drained();
  co_await exchange.close();
}

int main() {
  asio::io_context io;
  cohort::communicator world(io);
  asio::co_spawn(io, pass(world), asio::detached);
  io.run();
}
