// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A rank is killed, the launcher lets the others go on, and they end: they name it, shut down, and
// do not stay in MPI_Finalize. Not a Catch2 program, for the job loses a rank.

#include <cohort/coordinator/coordinator.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/rethrow.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <utility>

namespace {

using namespace std::chrono_literals;

asio::awaitable<void> train(cohort::communicator world) {
  cohort::coordinator_options impatient;
  impatient.query_timeout = 500ms;
  impatient.decision_timeout = 1s;
  impatient.leave_deadline = 3s;
  cohort::coordinator coord(world, impatient);
  double value = 1;
  co_await coord.all_reduce("before", value, cohort::op::sum);
  if (world.rank() == world.size() - 1) std::raise(SIGKILL);
  auto sum = coord.all_reduce("after", value, cohort::op::sum, cohort::as_future);
  try {
    co_await cohort::with_deadline(std::move(sum), 500ms);
  } catch (const std::exception& problem) {
    std::printf("%s\n", problem.what());
  }
  try {
    co_await coord.shutdown();
  } catch (const std::exception& problem) {
    std::printf("%s\n", problem.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  cohort::environment env{argc, argv};
  asio::io_context io;
  const cohort::communicator world{io};
  asio::co_spawn(io, train(world), cohort::rethrow);
  io.run();
  std::printf("the loop has ended\n");
  std::fflush(stdout);
}
