// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The ways a program with a coordinator can end, one per argument. Not a Catch2 program: they end
// the job.

#include <cohort/comm/run.hpp>
#include <cohort/coordinator.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/engine.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
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

/// The last rank throws; the others wait for it.
asio::awaitable<void> last_throws(cohort::communicator world) {
  cohort::coordinator coord(world);
  co_await coord.barrier();
  if (world.rank() == world.size() - 1) throw std::runtime_error("cannot open its file");
  co_await coord.barrier();
}

/// What it waits for is without a request of MPI: not all ranks have submitted it.
asio::awaitable<void> last_throws_over(cohort::communicator world, int operations) {
  cohort::coordinator coord(world);
  co_await coord.barrier();
  std::vector<std::vector<int>> data(static_cast<std::size_t>(operations), std::vector<int>(4, 1));
  if (world.rank() == world.size() - 1) {
    const auto executor = co_await asio::this_coro::executor;
    for (int i = 0; i < operations; ++i) {
      const std::string name = operations == 1 ? "loss" : "t" + std::to_string(i);
      coord.all_reduce(name, std::move(data[static_cast<std::size_t>(i)]), cohort::op::sum,
                       asio::detached);
    }
    coord.join(asio::detached);
    asio::steady_timer timer(executor, 20ms);
    co_await timer.async_wait(asio::use_awaitable);
    throw std::runtime_error("cannot open its file");
  }
  int never = 0;
  co_await cohort::recv(world, never, world.size() - 1, tag);
}

/// A data operation has failed on one rank and another rank does not close: MPI may then write to
/// the callers' memory at any time, so the job ends.
int fault(int argc, char** argv) {
  cohort::environment env{argc, argv};
  try {
    asio::io_context io;
    cohort::use_engine(io, {.drain = 500ms});
    cohort::communicator world(io,
                               {.backend = cohort::backend_choice::mpi});  // one of its calls fails
    asio::co_spawn(io, train(world), cohort::rethrow);
    io.run();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "caught in main: %s\n", problem.what());
    std::this_thread::sleep_for(3s);  // the failed rank would end the job before
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (const char* const file = std::getenv("COHORT_TEST_STDERR")) {
    ::dup2(::open(file, O_WRONLY | O_APPEND), STDERR_FILENO);
  }
  const std::string ending = argv[1];
  if (ending == "fault") return fault(argc, argv);
  if (ending == "idle") return cohort::run(argc, argv, last_throws);
  const int operations = ending == "waiting" ? 1 : 20;
  return cohort::run(
      argc, argv, [=](cohort::communicator world) { return last_throws_over(world, operations); });
}
