// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What does the engine add to MPI_Testsome, per look and per completion, and does its memory stay
// flat? Start it with two ranks: the second one sleeps, so that MPI polls shared memory as usual.

#include "competitors.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/mpi/environment.hpp>

#include <CLI/CLI.hpp>

#include <malloc.h>

namespace {

void measure_tests(const cohort::communicator& world, asio::io_context& io, int chunks) {
  std::printf("one look over n receives that do not complete\n");
  for (const int count : {1, 8, 64, 256, 1024, 4096}) {
    raw_mpi::receives raw(world.native(), 1, count);
    with_cohort::receives mine(world, io, 2, count);
    const int rounds = 2'000'000 / (20 + count);
    std::vector<double> raw_times;
    std::vector<double> mine_times;
    for (int chunk = -2; chunk < chunks; ++chunk) {
      const double raw_time = raw.test(rounds);
      const double mine_time = mine.test(std::chrono::milliseconds(2));
      if (chunk < 0) continue;
      raw_times.push_back(raw_time);
      mine_times.push_back(mine_time);
    }
    const auto ratio = bench::ratios(mine_times, raw_times);
    bench::print_row("  n = " + std::to_string(count) + ": test in a long lap",
                     bench::median(ratio), "x raw", count < 64 ? 0 : 1.25);
    std::printf("      %.1f ns against %.1f ns of MPI_Testsome\n", bench::median(mine_times),
                bench::median(raw_times));
  }
}

void measure_completions(const cohort::communicator& world, asio::io_context& io, int chunks) {
  std::printf("\nk of n receives complete: what delivering them costs beyond MPI_Testsome\n");
  for (const int count : {256, 4096}) {
    raw_mpi::receives raw(world.native(), 1, count);
    with_cohort::receives mine(world, io, 2, count);
    for (int completing = 1; completing <= count; completing *= 8) {
      std::vector<double> extra;
      std::vector<double> raw_times;
      for (int chunk = -2; chunk < chunks; ++chunk) {
        const double raw_time = raw.complete(completing);
        const double mine_time = mine.complete(completing);
        if (chunk < 0) continue;
        raw_times.push_back(raw_time);
        extra.push_back((mine_time - raw_time) / completing);
      }
      bench::print_row(
          "  n = " + std::to_string(count) + ", k = " + std::to_string(completing) + ": each",
          bench::median(extra), "ns");
    }
  }
}

void measure_memory(const cohort::communicator& world, asio::io_context& io, int millions) {
  const auto used = [] { return static_cast<double>(mallinfo2().uordblks) / 1024; };
  const auto resident = [] { return std::stod(bench::fact("/proc/self/status", "VmRSS")); };
  with_cohort::exchange(world, io, 100'000);
  const double used_before = used();
  const double resident_before = resident();
  const auto start = bench::clock::now();
  with_cohort::exchange(world, io, millions * 1'000'000 / 2);
  const double elapsed = bench::nanoseconds_since(start);
  std::printf("\n%d000000 operations (sends and receives, 128 in flight)\n", millions);
  bench::print_row("  per operation", elapsed / 1e6 / millions, "ns");
  bench::print_row("  growth of the heap", used() - used_before, "KiB", 1);
  bench::print_row("  growth of resident memory", resident() - resident_before, "KiB");
}

}  // namespace

int main(int argc, char** argv) {
  int chunks = 100;
  int millions = 1;
  CLI::App app("What the engine adds to MPI_Testsome; start it with mpirun -np 2");
  app.add_option("--chunks", chunks, "chunks of each measurement");
  app.add_option("--millions", millions, "operations that must leave memory as it was");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  asio::io_context io;
  cohort::engine_options options;
  options.spin = std::chrono::hours(1);  // long laps are what is measured, not naps
  cohort::use_engine(io, options);
  cohort::communicator world(io);
  if (world.rank() == 0) {
    bench::print_machine(world.size());
    measure_tests(world, io, chunks);
    measure_completions(world, io, chunks);
    measure_memory(world, io, millions);
    for (int rank = 1; rank < world.size(); ++rank) {
      MPI_Send(nullptr, 0, MPI_BYTE, rank, 0, world.native());
    }
  } else {
    for (int done = 0; done == 0;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      MPI_Iprobe(0, 0, world.native(), &done, MPI_STATUS_IGNORE);
    }
    MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, world.native(), MPI_STATUS_IGNORE);
  }
}
