// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// How long must tasks take so that half of the time is work? METG(50 %) of patterns of Task Bench
// over two ranks, beside nonblocking MPI that is written by hand for the pattern. Competitors take
// turns within one process, run by run; ratios are taken turn by turn and their medians reported.

#include "competitors.hpp"
#include "examples/support/granularity_search.hpp"
#include "support/core_distance.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <functional>
#include <limits>

namespace {

using support::dependence;
using support::granularity_search;

struct competitor {
  const char* name;
  std::function<asio::awaitable<void>(const dependence_pattern&, long rounds)> run;
};

struct lengths {
  long steps = 500;
  int runs = 7;  ///< of which the best counts
  std::size_t turns = 15;
};

struct contest {
  const char* name;
  dependence kind;
  long width;
  long radix;
  double target;  ///< of cohort over the first competitor
};

/// Of a core, for each task, as the slowest rank sees it. The best of some runs: others may have
/// a core for a while, and a competitor whose peer has none waits for it.
asio::awaitable<double> time_of(cohort::communicator world, const competitor& who,
                                const dependence_pattern& pattern, long rounds, int runs) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs; ++i) {
    co_await cohort::barrier(world);
    const auto start = bench::clock::now();
    co_await who.run(pattern, rounds);
    double took = bench::nanoseconds_since(start);
    co_await cohort::all_reduce(world, took, cohort::op::max);
    best = std::min(best, took);
  }
  const double cores = static_cast<double>(std::min<long>(world.size(), pattern.width));
  co_return best / static_cast<double>(pattern.tasks()) * cores;
}

/// Of the work alone, while all ranks work; the best of as many runs.
asio::awaitable<double> work_of(cohort::communicator world, long rounds, int runs) {
  const long repeated = 1 + 5'000 / (rounds + 1);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs; ++i) {
    co_await cohort::barrier(world);
    const auto start = bench::clock::now();
    for (long k = 0; k < repeated; ++k) support::work(rounds);
    best = std::min(best, bench::nanoseconds_since(start));
  }
  co_await cohort::all_reduce(world, best, cohort::op::min);
  co_return best / static_cast<double>(repeated);
}

/// Nanoseconds for each competitor, fewer where one was not found; each try of one is followed by
/// one of the next.
asio::awaitable<std::vector<double>> search(cohort::communicator world,
                                            const std::vector<competitor>& all,
                                            const dependence_pattern& pattern, std::size_t turn,
                                            int runs) {
  std::vector<granularity_search> searches(all.size(), granularity_search(1L << 13));
  for (bool done = false; !done;) {
    done = true;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t who = (i + turn) % all.size();
      granularity_search& one = searches[who];
      if (one.done()) continue;
      const double work = co_await work_of(world, one.rounds(), runs);
      const double whole = co_await time_of(world, all[who], pattern, one.rounds(), runs);
      one.tried(whole, work);
      done = false;
    }
  }
  std::vector<double> found;
  for (const auto& one : searches) {
    if (one.found()) found.push_back(one.metg());
  }
  co_return found;
}

void report(const contest& what, const std::vector<competitor>& all,
            const std::vector<std::vector<double>>& times, const std::vector<bool>& far) {
  if (far.empty()) {
    std::printf("%s: not found, the ranks did not have their cores for long enough\n\n", what.name);
    return;
  }
  std::printf("%s: %s, median %.2f us; %zu turns, %zu with far cores\n", what.name, all[0].name,
              bench::median(times[0]) / 1000, far.size(), bench::only(times[0], far, true).size());
  for (std::size_t who = 1; who < all.size(); ++who) {
    const auto ratio = bench::ratios(times[who], times[0]);
    const bool is_cohort = who >= 2;
    bench::print_row(std::string("  ") + all[who].name, bench::median(ratio), "x",
                     is_cohort ? what.target : 0);
    bench::print_spread(times[who], ratio, far);
  }
  std::printf("\n");
}

asio::awaitable<void> compare(cohort::communicator world, bench::core_distance& distance,
                              const std::vector<competitor>& all, contest what, lengths of) {
  const dependence_pattern pattern{what.kind, what.width, of.steps, what.radix};
  std::vector<std::vector<double>> times(all.size());
  std::vector<bool> far;
  for (const competitor& one : all) co_await one.run(pattern, 1);  // to warm up
  for (std::size_t turn = 0; turn < of.turns; ++turn) {
    co_await cohort::barrier(world);  // the probe blocks
    const bool is_far = distance.round_trip() > 200;
    const auto found = co_await search(world, all, pattern, turn, of.runs);
    if (found.size() < all.size()) continue;  // a core was taken away
    far.push_back(is_far);
    for (std::size_t who = 0; who < all.size(); ++who) times[who].push_back(found[who]);
  }
  if (world.rank() == 0) report(what, all, times, far);
}

asio::awaitable<void> ready() { co_return; }

asio::awaitable<void> measure(cohort::communicator world, bench::core_distance& distance,
                              lengths of, std::string only) {
  cohort::graph::tasks graphs{world};
  const auto raw = [comm = world.native()](raw_mpi::messages how) {
    return [comm, how](const dependence_pattern& pattern, long rounds) {
      raw_mpi::run(comm, pattern, rounds, how);
      return ready();
    };
  };
  std::vector<competitor> all;
  all.push_back({"MPI by hand, a message for each edge", raw(raw_mpi::messages::of_edges)});
  all.push_back({"MPI by hand, a message for each rank", raw(raw_mpi::messages::of_ranks)});
  all.push_back({"cohort", [&graphs](const dependence_pattern& pattern, long rounds) {
                   return with_cohort::run(graphs, pattern, rounds);
                 }});
  all.push_back({"cohort, windows of 50 steps run again",
                 [&graphs](const dependence_pattern& pattern, long rounds) {
                   return with_cohort::run_again(graphs, pattern, rounds);
                 }});
  constexpr contest contests[] = {
      {"stencil, width 2", dependence::stencil_1d, 2, 3, 2},
      {"stencil, width 8", dependence::stencil_1d, 8, 3, 1.2},
      {"nearest of radix 5, width 8", dependence::nearest, 8, 5, 1},
  };
  for (const contest& one : contests) {
    if (only.empty() || only == one.name) {
      co_await compare(world, distance, all, one, of);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  lengths of;
  std::string only;
  CLI::App app("How long tasks must take; start it with mpirun -np 2");
  app.add_option("--steps", of.steps, "steps of each run");
  app.add_option("--turns", of.turns, "searches of each competitor");
  app.add_option("--runs", of.runs, "runs of each try, of which the best counts");
  app.add_option("--only", only, "name of one pattern");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  asio::io_context io;
  asio::steady_timer alive(io, std::chrono::hours(1));  // makes every turn of the loop dearer
  cohort::communicator world(io);
  if (world.rank() == 0) bench::print_machine(world.size());
  bench::core_distance distance(cohort::mpi::comm_ref(world.native()));
  asio::co_spawn(io, measure(world, distance, of, only), cohort::rethrow);
  io.run();
}
