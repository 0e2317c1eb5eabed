// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A job of three ranks whose launcher does not end it when one of them dies
// (mpiexec --enable-recovery, messages over "mpi" or "tcp", the argument): rank 0 adopts the
// others, the last one kills itself in a call, and the survivors end by themselves, in bounded
// time, although MPI_Finalize would wait for it for ever.

#include <cohort/cluster/adopt_options.hpp>
#include <cohort/cluster/serve.hpp>
#include <cohort/cluster/workers.hpp>
#include <cohort/mpi/environment.hpp>

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <string_view>

namespace {

using cohort::cluster::adopt_options;

int dies() { return ::raise(SIGKILL); }
int square(int of) { return of * of; }

asio::awaitable<void> manage(cohort::communicator world, cohort::cluster::transport how) {
  auto options = adopt_options().transport(how).heartbeat(std::chrono::milliseconds(300));
  options.on_loss(cohort::cluster::loss_policy::proceed);
  auto adopting = cohort::cluster::adopt(world, options);
  const cohort::cluster::workers all = co_await std::move(adopting);
  try {
    co_await all.call<&dies>(2);
  } catch (const cohort::peer_lost_error& lost) {
    std::printf("rank %d is lost\n", lost.ranks().front());
  }
  std::printf("rank 1 answers %d\n", co_await all.call<&square>(1, 3));
  co_await all.shutdown();
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
