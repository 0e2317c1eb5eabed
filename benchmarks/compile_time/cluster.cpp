// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A manager that launches workers and calls them, and what the workers do.

#include <cohort/cluster.hpp>

int doubled(int number) { return 2 * number; }

asio::awaitable<void> manage(asio::io_context& io) {
  auto launching = cohort::cluster::launch(io, cohort::cluster::launch_options{}.ranks(2));
  auto workers = co_await std::move(launching);
  co_await workers.call<&doubled>(1, 21);
  co_await workers.shutdown();
}

int main(int argc, char** argv) {
  if (cohort::cluster::serve(argc, argv)) return 0;
  asio::io_context io;
  asio::co_spawn(io, manage(io), cohort::rethrow);
  io.run();
}
