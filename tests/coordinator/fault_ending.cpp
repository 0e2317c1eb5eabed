// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A data operation has failed on one rank and another rank does not close: MPI may then write to
// the callers' memory at any time, so the job ends. Not a Catch2 program, for that ends it.

#include <cohort/coordinator.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/rethrow.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>
#include <vector>

#include "faults/interposer.hpp"

namespace {

using namespace std::chrono_literals;

constexpr int tag = 77;

asio::awaitable<void> reduce(cohort::coordinator coord) {
  std::vector<int> data(4, 1);
  co_await coord.all_reduce("gradient", data, cohort::op::sum);
}

asio::awaitable<void> train(cohort::communicator world) {
  cohort::coordinator coord(world);
  co_await coord.barrier();
  if (world.rank() == 2) {
    MPI_Recv(nullptr, 0, MPI_BYTE, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    faults::fail_next("MPI_Iallreduce", MPI_ERR_NO_MEM);
  }
  if (world.rank() == 1) {
    const auto executor = co_await asio::this_coro::executor;
    const auto before = coord.stats().messages_sent;
    asio::co_spawn(executor, reduce(coord), asio::detached);
    asio::steady_timer timer(executor);
    while (coord.stats().messages_sent == before) {
      timer.expires_after(1ms);
      co_await timer.async_wait(asio::use_awaitable);
    }
    MPI_Send(nullptr, 0, MPI_BYTE, 2, tag, MPI_COMM_WORLD);
    std::this_thread::sleep_for(20s);  // a handler that does not come back
  }
  co_await reduce(coord);
}

}  // namespace

int main(int argc, char** argv) {
  cohort::environment env{argc, argv};
  try {
    asio::io_context io;
    cohort::use_engine(io, {.drain = 500ms});
    cohort::communicator world(io);
    asio::co_spawn(io, train(world), cohort::rethrow);
    io.run();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "caught in main: %s\n", problem.what());
    std::this_thread::sleep_for(3s);  // the failed rank would end the job before
  }
  return 0;
}
