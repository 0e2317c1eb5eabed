// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What does a graph of tasks cost a real program? A Cholesky factorisation by tiles on one rank and
// on all, beside MPI that is written by hand, and beside what the kernels allow. Competitors take
// turns within one process; the order rotates. Ratios are taken turn by turn and their medians
// reported.

#include "competitors.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <stdexcept>

namespace {

enum place : std::size_t { by_hand, by_graph, by_hand_alone, by_graph_alone, count_of_places };
constexpr const char* names[] = {"MPI by hand", "cohort", "MPI by hand, one rank",
                                 "cohort, one rank"};

struct kernel_times {
  double factor = 0, solve = 0, update = 0;
};

template <class Work>
double best_of_three(Work work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const auto start = bench::clock::now();
    work();
    best = std::min(best, bench::nanoseconds_since(start));
  }
  return best;
}

kernel_times times_of_kernels(const problem& what) {
  const tile first = support::factor(what.load(0, 0));
  const tile row = what.load(2, 0);
  const tile column = what.load(1, 0);
  tile target = what.load(2, 1);
  kernel_times each;
  each.factor = best_of_three([&] { (void)support::factor(what.load(0, 0)); });
  each.solve = best_of_three([&] { (void)support::solve(first, row); });
  each.update = best_of_three([&] { target = support::update(row, column, std::move(target)); });
  return each;
}

/// No program takes less: all work on the ranks that there are, or the longest chain of tasks.
double bound(const problem& what, const kernel_times& each, int ranks) {
  const double n = what.tiles;
  const double work =
      n * each.factor + n * (n - 1) / 2 * each.solve + (n - 1) * n * (n + 1) / 6 * each.update;
  const double chain = n * each.factor + (n - 1) * (each.solve + each.update);
  return std::max(work / ranks, chain);
}

struct contestants {
  cohort::communicator world;
  cohort::communicator alone;
  cohort::graph::tasks on_all;
  cohort::graph::tasks on_one;
  problem shared;
  problem whole;
};

/// Nanoseconds of the slowest rank; checks the last tile.
asio::awaitable<double> time_of(contestants& all, place who) {
  co_await cohort::barrier(all.world);
  outcome made;
  const auto start = bench::clock::now();
  if (who == by_hand) made = raw_mpi::run(all.world.native(), all.shared);
  if (who == by_graph) made = co_await with_cohort::run(all.on_all, all.shared);
  if (all.world.rank() == 0) {
    if (who == by_hand_alone) made = raw_mpi::run(all.alone.native(), all.whole);
    if (who == by_graph_alone) made = co_await with_cohort::run(all.on_one, all.whole);
  }
  std::array<double, 2> both{bench::nanoseconds_since(start), made.last};
  co_await cohort::all_reduce(all.world, both, cohort::op::max);
  static const double expected = both[1];
  if (both[1] != expected || expected == 0) {
    throw std::runtime_error(std::string(names[who]) + ": has made another last tile");
  }
  co_return both[0];
}

void report(const std::vector<std::vector<double>>& times, const std::vector<double>& bounds,
            const problem& what, int ranks) {
  std::printf("%d x %d tiles of %zu x %zu by %s, %d ranks: %s, median %.1f ms; %zu turns\n",
              what.tiles, what.tiles, what.side, what.side,
              what.by_columns ? "columns" : "diagonals", ranks, names[by_hand],
              bench::median(times[by_hand]) / 1e6, times[0].size());
  const auto row = [](const char* name, const std::vector<double>& mine,
                      const std::vector<double>& base, const char* unit, double target) {
    const auto ratio = bench::ratios(mine, base);
    bench::print_row(std::string("  ") + name, bench::median(ratio), unit, target);
    std::printf("      half of the ratios %.2f to %.2f\n", bench::percentile(ratio, 0.25),
                bench::percentile(ratio, 0.75));
  };
  row("cohort over MPI by hand", times[by_graph], times[by_hand], "x", 1.1);
  row("cohort over max(work / ranks, longest chain)", times[by_graph], bounds, "x", 1.1);
  row("MPI by hand over that", times[by_hand], bounds, "x", 0);
  row("cohort, all ranks over one rank", times[by_graph], times[by_graph_alone], "x", 1 / 1.6);
  row("MPI by hand, all ranks over one rank", times[by_hand], times[by_hand_alone], "x", 0);
  row("cohort over MPI by hand, one rank", times[by_graph_alone], times[by_hand_alone], "x", 0);
  // Kernels are timed with their tiles in the cache, and with nothing else on the other cores.
  std::vector<double> share = times[by_hand_alone];
  for (double& each : share) each /= ranks;
  row("cohort over one rank by hand / ranks", times[by_graph], share, "x", 0);
}

asio::awaitable<void> measure(cohort::communicator world, problem shared, int turns, int threads) {
  shared.ranks = world.size();
  problem whole = shared;
  whole.ranks = 1;
  const auto alone = co_await world.split(world.rank());
  const auto with = cohort::graph::tasks_options().on_threads(threads);
  contestants all{
      world,  alone, cohort::graph::tasks(world, with), cohort::graph::tasks(alone, with),
      shared, whole};
  std::vector<std::vector<double>> times(count_of_places);
  std::vector<double> bounds;
  for (int turn = -1; turn < turns; ++turn) {  // one to warm up
    co_await cohort::barrier(world);
    const kernel_times each = times_of_kernels(all.shared);
    double least = bound(all.shared, each, world.size());
    co_await cohort::all_reduce(world, least, cohort::op::max);
    if (turn >= 0) bounds.push_back(least);
    for (std::size_t i = 0; i < count_of_places; ++i) {
      const auto who =
          static_cast<place>((i + static_cast<std::size_t>(turn + 1)) % count_of_places);
      const double took = co_await time_of(all, who);
      if (turn >= 0) times[who].push_back(took);
    }
  }
  if (world.rank() == 0) report(times, bounds, all.shared, world.size());
}

}  // namespace

int main(int argc, char** argv) {
  problem what{8, 256, 1, false};
  int turns = 7;
  int threads = 0;
  CLI::App app("What a graph of tasks costs a Cholesky factorisation; mpirun -np 2, or more");
  app.add_option("--tiles", what.tiles, "in a row")->check(CLI::Range(2, 100));
  app.add_option("--tile", what.side, "rows of a tile")->check(CLI::Range(1, 2000));
  app.add_option("--turns", turns, "runs of each competitor");
  app.add_option("--threads", threads, "of each rank, for the bodies of tasks");
  app.add_flag("--by-columns", what.by_columns, "tiles of a column are on one rank");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  asio::io_context io;
  cohort::communicator world(io);
  if (world.rank() == 0) bench::print_machine(world.size());
  asio::co_spawn(io, measure(world, what, turns, threads), cohort::rethrow);
  io.run();
}
