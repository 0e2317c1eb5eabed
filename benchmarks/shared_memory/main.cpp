// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What does an awaited all_reduce cost through shared memory, against MPI's own, nonblocking and
// blocking? Competitors take turns within one process; the order rotates. Ratios are taken turn by
// turn and their medians reported.

#include "competitors.hpp"
#include "support/report.hpp"
#include "support/shared_memory.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/barrier.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>

#include <CLI/CLI.hpp>

#include <array>
#include <stdexcept>

namespace {

asio::awaitable<void> measure(cohort::communicator world, int turns,
                              cohort::shm::backend_options options) {
  cohort::communicator shared = co_await world.dup();
  shared.set_backend(co_await bench::make_shared_memory(world, options));
  const MPI_Comm comm = world.native();
  if (world.rank() == 0) {
    std::printf("%10s %12s %12s %12s   over nonblocking  over blocking\n", "bytes", "nonblocking",
                "blocking", "shared, us");
  }
  for (const std::size_t bytes :
       {8U, 512U, 4096U, 16384U, 65536U, 262144U, 1U << 20U, 4U << 20U, 16U << 20U, 64U << 20U}) {
    const numbers in(bytes / sizeof(float), 1);
    std::array<numbers, 2> out{numbers(in.size()), numbers(in.size())};
    const int rounds = bytes <= 4096 ? 1000 : bytes <= 65536 ? 100 : bytes <= 4U << 20U ? 10 : 1;
    std::array<std::vector<double>, 3> times;
    for (int turn = -1; turn < turns; ++turn) {  // one to warm up
      for (std::size_t i = 0; i < times.size(); ++i) {
        const std::size_t who = (i + static_cast<std::size_t>(turn + 1)) % times.size();
        co_await cohort::barrier(world);
        MPI_Barrier(comm);
        const double time = who == 0   ? raw_mpi::nonblocking(comm, in, out[0], rounds)
                            : who == 1 ? raw_mpi::blocking(comm, in, out[0], rounds)
                                       : co_await with_cohort::awaited(shared, in, out[1], rounds);
        if (turn >= 0) times[who].push_back(time);
      }
      if (out[0] != out[1]) throw std::runtime_error("another sum than MPI's");
    }
    if (world.rank() != 0) continue;
    const auto nonblocking = bench::ratios(times[2], times[0]);
    const auto blocking = bench::ratios(times[2], times[1]);
    std::printf("%10zu %12.2f %12.2f %12.2f   %.2f (%.2f to %.2f)  %.2f (%.2f to %.2f)\n", bytes,
                bench::median(times[0]) / 1000, bench::median(times[1]) / 1000,
                bench::median(times[2]) / 1000, bench::median(nonblocking),
                bench::percentile(nonblocking, 0.25), bench::percentile(nonblocking, 0.75),
                bench::median(blocking), bench::percentile(blocking, 0.25),
                bench::percentile(blocking, 0.75));
  }
}

}  // namespace

int main(int argc, char** argv) {
  int turns = 30;
  cohort::shm::backend_options options;
  CLI::App app("Sums through shared memory and through MPI; start it with mpirun -np 2, or more");
  app.add_option("--turns", turns, "turns of each competitor");
  app.add_option("--chunk", options.chunk, "bytes that a rank lays down at a time");
  app.add_option("--whole", options.whole_up_to, "bytes up to which every rank reduces all");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  asio::io_context io;
  cohort::communicator world(io);
  if (world.rank() == 0) bench::print_machine(world.size());
  asio::co_spawn(io, measure(world, turns, options), cohort::rethrow);
  io.run();
}
