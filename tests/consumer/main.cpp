// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A user's program: it sums the ranks and fails if the sum is wrong.
#include <cohort/cohort.hpp>

asio::awaitable<void> sum_ranks(cohort::communicator world, int& sum) {
  sum = world.rank();
  co_await cohort::all_reduce(world, sum, cohort::op::sum);
}

int main(int argc, char** argv) {
  cohort::environment env{argc, argv};
  asio::io_context io;
  cohort::communicator world{io};
  int sum = -1;
  asio::co_spawn(io, sum_ranks(world, sum), cohort::rethrow);
  io.run();
  return sum == world.size() * (world.size() - 1) / 2 ? 0 : 1;
}
