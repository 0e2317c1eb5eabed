// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A job of three ranks whose launcher does not end it when one of them dies
// (mpiexec --enable-recovery, messages over "mpi" or "tcp", the argument): rank 0 adopts the
// others, the last one kills itself in a call, and the survivors end by themselves, in bounded
// time, although MPI_Finalize would wait for it for ever.

#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/serve.hpp>
#include <cohort/cluster/workers.hpp>
#include <cohort/mpi/environment.hpp>

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/patience.hpp"

namespace {

using cohort::cluster::adopt_options;

int dies() { return ::raise(SIGKILL); }
int square(int of) { return of * of; }

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("it does not hold that ") + what);
}

asio::awaitable<void> manage(cohort::communicator world, cohort::cluster::transport how) {
  auto options = adopt_options().transport(how).heartbeat(std::chrono::milliseconds(300));
  options.on_loss(cohort::cluster::loss_policy::proceed);
  auto adopting = cohort::cluster::adopt(world, options);
  const cohort::cluster::workers all = co_await std::move(adopting);
  const auto begun = std::chrono::steady_clock::now();
  std::vector<int> named;
  try {
    co_await all.call<&dies>(2);
  } catch (const cohort::peer_lost_error& lost) {
    named = lost.ranks();
  }
  const auto told = std::chrono::steady_clock::now();
  const int nine = co_await all.call<&square>(1, 3);
  co_await all.shutdown();
  const auto over = std::chrono::steady_clock::now();
  require(named == std::vector<int>{2}, "rank 2 is named, and no other");
  require(told - begun < cohort_test::patient(std::chrono::seconds(3)), "it is named soon");
  require(nine == 9, "rank 1 answers");
  require(over - told < cohort_test::patient(std::chrono::seconds(5)), "the shutdown ends soon");
  std::printf("the shutdown is over\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const cohort::environment env(argc, argv);
  asio::io_context io;
  const cohort::communicator world(io);
  if (world.rank() != 0) {
    cohort::cluster::serve(world);
    return 0;
  }
  using cohort::cluster::transport;
  const auto how = std::string_view(argv[1]) == "mpi" ? transport::mpi : transport::tcp;
  auto done = asio::co_spawn(io, manage(world, how), cohort::as_future);
  io.run();
  done.get();
}
