// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What do awaited collectives cost through shared memory, against MPI's own, nonblocking and
// blocking? Without more, sums of all sizes, and what the copies of their bytes alone would take;
// with --kinds one table of all collectives. Competitors take turns within one process; the order
// rotates. Ratios are taken turn by turn and their medians reported; a turn takes as long as it
// takes the slowest rank.

#include "competitors.hpp"
#include "support/core_distance.hpp"
#include "support/report.hpp"
#include "support/shared_memory.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/barrier.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using cohort::op_kind;

struct settings {
  int turns = 0;  // as many as are good for the table
  bool kinds = false;
  bool chosen = false;
  bool fresh = false;
  bool alone = false;
  std::vector<std::size_t> bytes;
  std::vector<std::string> only;  // of the kinds
  int nodes = 0;
  cohort::shm::backend_options memory;
};

struct result {
  std::array<std::vector<double>, 3> times;  // nonblocking, blocking, cohort

  [[nodiscard]] std::vector<double> over(std::size_t who) const {
    return bench::ratios(times[2], times[who]);
  }
  /// Over the better of the two.
  [[nodiscard]] double over_best() const {
    return std::max(bench::median(over(0)), bench::median(over(1)));
  }
};

int rounds_of(std::size_t bytes) {
  return bytes <= 4096 ? 1000 : bytes <= 65536 ? 100 : bytes <= 4U << 20U ? 10 : 1;
}

/// On all ranks, by turns.
asio::awaitable<result> race(cohort::communicator world, cohort::communicator shared, op_kind kind,
                             std::size_t bytes, const settings& chosen) {
  const MPI_Comm comm = world.native();
  std::array<collective, 2> calls{collective(kind, bytes / sizeof(float), world.size()),
                                  collective(kind, bytes / sizeof(float), world.size())};
  const int rounds = rounds_of(bytes);
  result all;
  for (int turn = -1; turn < chosen.turns; ++turn) {  // one to warm up
    for (std::size_t i = 0; i < all.times.size(); ++i) {
      const std::size_t who = (i + static_cast<std::size_t>(turn + 1)) % all.times.size();
      if (chosen.alone && who != 2) continue;
      co_await cohort::barrier(shared);
      MPI_Barrier(comm);
      double time = who == 0 ? raw_mpi::nonblocking(comm, calls[0], rounds, chosen.fresh)
                    : who == 1
                        ? raw_mpi::blocking(comm, calls[0], rounds, chosen.fresh)
                        : co_await with_cohort::awaited(shared, calls[1], rounds, chosen.fresh);
      MPI_Allreduce(MPI_IN_PLACE, &time, 1, MPI_DOUBLE, MPI_MAX, comm);
      if (turn >= 0) all.times[who].push_back(time);
    }
    if (!chosen.alone && calls[0].out != calls[1].out)
      throw std::runtime_error("another result than MPI's");
  }
  co_return all;
}

/// Nanoseconds of a sum of `bytes`, if nothing cost but the copies of what every rank must move:
/// docs/design/planes.md. Half of it is read where another rank has just written it.
double floor_of_sum(double bytes, double ranks, double own_speed, double across_speed) {
  const double all = bytes * (5 * ranks - 2) / (2 * ranks);
  const double across = bytes * 2 * (ranks - 1) / ranks;
  return (all - across) / own_speed + across / across_speed;
}

asio::awaitable<void> sums(cohort::communicator world, cohort::communicator shared,
                           settings chosen) {
  if (chosen.turns == 0) chosen.turns = 30;
  if (chosen.bytes.empty()) {
    chosen.bytes = {8, 512, 4096, 16384, 65536, 1 << 18, 1 << 20, 1 << 22, 1 << 24U, 1 << 26U};
  }
  const bool one_node = world.local_size() == world.size();  // else nothing is said of memory
  std::optional<bench::core_distance> cores;
  if (one_node) cores.emplace(cohort::mpi::comm_ref(world.native()));
  for (const std::size_t bytes : chosen.bytes) {
    const double line = one_node ? cores->round_trip() : 0;
    const result all = co_await race(world, shared, op_kind::all_reduce, bytes, chosen);
    copy_speeds speed;
    if (one_node) speed = measure_copies(world.native(), std::max<std::size_t>(bytes, 4096));
    if (world.rank() != 0) continue;
    const auto size = static_cast<double>(bytes);
    const double taken = bench::median(all.times[2]);
    std::printf("%10zu %12.2f %12.2f %12.2f", bytes, bench::median(all.times[0]) / 1000,
                bench::median(all.times[1]) / 1000, taken / 1000);
    for (const std::size_t who : {0U, 1U}) {
      const auto ratio = all.over(who);
      std::printf("   %.2f (%.2f to %.2f)", bench::median(ratio), bench::percentile(ratio, 0.25),
                  bench::percentile(ratio, 0.75));
    }
    if (!one_node) std::printf("\n");
    if (one_node)
      std::printf("  %6.1f %6.1f %6.2f %6.2f %6.0f\n", speed.own, speed.across,
                  floor_of_sum(size, world.size(), speed.own, speed.own) / taken,
                  floor_of_sum(size, world.size(), speed.own, speed.across) / taken, line);
    std::fflush(stdout);
  }
}

asio::awaitable<void> kinds(cohort::communicator world, cohort::communicator shared,
                            settings chosen) {
  if (chosen.turns == 0) chosen.turns = 10;
  if (chosen.bytes.empty()) chosen.bytes = {8, 512, 4096, 65536, 1 << 20, 1 << 24};
  if (world.rank() == 0) {
    std::printf("over the better of MPI's calls, and over the nonblocking one\n%-16s", "");
    for (const std::size_t bytes : chosen.bytes) std::printf(" %11zu", bytes);
    std::printf("\n");
  }
  for (const op_kind kind : {op_kind::all_reduce, op_kind::reduce, op_kind::broadcast,
                             op_kind::all_gather, op_kind::gather, op_kind::scatter,
                             op_kind::reduce_scatter, op_kind::all_to_all, op_kind::barrier}) {
    const std::string name(cohort::name_of(kind));
    const auto& only = chosen.only;
    if (!only.empty() && std::find(only.begin(), only.end(), name) == only.end()) continue;
    if (world.rank() == 0) std::printf("%-16s", name.c_str());
    for (const std::size_t bytes : chosen.bytes) {
      const result all = co_await race(world, shared, kind, bytes, chosen);
      if (world.rank() == 0) {
        std::printf("  %5.2f %4.2f", all.over_best(), bench::median(all.over(0)));
      }
      if (kind == op_kind::barrier) break;
      std::fflush(stdout);
    }
    if (world.rank() == 0) std::printf("\n");
  }
}

asio::awaitable<void> measure(cohort::communicator world, settings chosen) {
  cohort::communicator shared = co_await world.dup();
  if (chosen.chosen) {  // by itself, with one of the first collectives
    for (int i = 0; i < 1000; ++i) co_await cohort::barrier(shared);
    const std::string by(shared.stats().backend);
    if (by != "shm") throw std::runtime_error("no shared memory has been chosen");
  } else {
    shared.set_backend(co_await bench::make_shared_memory(world, chosen.memory));
  }
  if (world.rank() == 0 && !chosen.kinds) {
    std::printf("%10s %12s %12s %12s   %-19s   %-19s  %6s %6s %6s %6s %6s\n", "bytes",
                "nonblocking", "blocking", "shared, us", "over nonblocking", "over blocking",
                "GB/s", "across", "floor", "across", "line");
  }
  if (chosen.kinds) {
    co_await kinds(world, shared, chosen);
  } else {
    co_await sums(world, shared, chosen);
  }
}

}  // namespace

int main(int argc, char** argv) {
  settings chosen;
  CLI::App app(
      "Collectives through shared memory and through MPI; start it with mpirun -np 2, or more");
  app.add_option("--turns", chosen.turns, "turns of each competitor");
  app.add_flag("--kinds", chosen.kinds, "all kinds of collectives, over the better of MPI's");
  app.add_flag("--by-itself", chosen.chosen, "what a communicator chooses that nobody asks");
  app.add_flag("--fresh", chosen.fresh, "every rank writes its data anew before each call");
  app.add_flag("--alone", chosen.alone, "without MPI's, for a profile");
  app.add_option("--bytes", chosen.bytes, "of the vector, or of a rank's block")->delimiter(',');
  app.add_option("--only", chosen.only, "of the kinds, by name")->delimiter(',');
  app.add_option("--nodes", chosen.nodes, "the ranks say that they are on so many, in blocks");
  app.add_option("--chunk", chosen.memory.chunk, "bytes that a rank lays down at a time");
  app.add_option("--whole", chosen.memory.whole_up_to, "bytes up to which every rank reduces all");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  asio::io_context io;
  const auto all = cohort::mpi::comm_ref::world();
  cohort::communicator_options options;
  if (chosen.nodes > 0) options.node = all.rank() * chosen.nodes / all.size();
  cohort::communicator world(io, options);
  if (world.rank() == 0) bench::print_machine(world.size());
  asio::co_spawn(io, measure(world, chosen), cohort::rethrow);
  io.run();
}
