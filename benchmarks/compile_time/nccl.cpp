// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// An all_reduce of NCCL that is awaited, with the declarations of the test doubles.

#include <cohort/nccl.hpp>

asio::awaitable<void> sum(cohort::communicator world) {
  const auto gpus = co_await cohort::nccl::make_communicator(world);
  const cohort::device::stream on;
  const cohort::device::vector<float> in(4, on);
  cohort::device::vector<float> out(4, on);
  co_await cohort::nccl::all_reduce(gpus, on, in, out, cohort::op::sum);
}

int main() {
  asio::io_context io;
  cohort::communicator world(io);
  asio::co_spawn(io, sum(world), asio::detached);
  io.run();
}
