// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file A value from rank 0 to rank 1, which waits for it.

#include <cohort/comm/run.hpp>
#include <cohort/rendezvous.hpp>

#include <vector>

#include "program.hpp"

asio::awaitable<void> rendezvous(cohort::communicator world) {
  cohort::rendezvous exchange(world);
  const auto executor = co_await asio::this_coro::executor;
  auto step = exchange.step(1);
  const cohort::rendezvous_key key{.source = 0, .destination = 1, .name = "activations"};
  for (int i = -1; i <= walk::repetitions; ++i) {
    if (world.rank() == 0) {
      co_await walk::until_told(world);
      if (i == 0) co_await walk::idle();
      co_await walk::turn();
      if (i > 0) walk::begin('w');
      step.send(key, std::vector<float>(100, 1.F));
      co_await walk::turn();  // the engine has looked
      walk::end();
    } else {
      const auto meanwhile = [](cohort::communicator with, int n) -> asio::awaitable<void> {
        co_await walk::pause(2);
        if (n == 0) co_await walk::idle();
        if (n > 0) walk::begin('w');
        walk::tell(with);
      };
      asio::co_spawn(executor, meanwhile(world, i), asio::detached);
      auto [value, dead] = co_await step.recv<std::vector<float>>(key);
      walk::end();
    }
  }
  co_await step.drained();
  exchange.cleanup(1);
  co_await exchange.close();
  walk::write(world.rank());
}

int main(int argc, char** argv) { return cohort::run(argc, argv, rendezvous); }
