// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What does a task cost on one rank? Graphs of tasks that do next to nothing are built and run, by
// name in cohort and in the least program that does it by name, by addresses in OpenMP, by objects
// in Taskflow. Competitors take turns within one process; the order rotates. Ratios are taken turn
// by turn and their medians reported.

#include "competitors.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>

#include <CLI/CLI.hpp>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <functional>

namespace {

struct competitor {
  const char* name;
  std::function<asio::awaitable<cost>(const shape&)> run;
};
enum place : std::size_t { least, cohort_runtime, cohort_machine, openmp, taskflow };

struct contest {
  const char* name;
  pattern of;
  double over_least;  ///< targets for cohort; 0: only reported
  double over_taskflow;
  double nanoseconds;
};

using times = std::vector<std::vector<double>>;

void print_row_of(const char* name, const std::vector<double>& mine,
                  const std::vector<double>& base, const char* unit, double target) {
  const auto ratio = bench::ratios(mine, base);
  const double each = bench::median(mine);
  bench::print_row(std::string("  ") + name, bench::median(ratio), unit, target);
  std::printf("      %.0f ns, half of the ratios %.2f to %.2f; %.1f million a second\n", each,
              bench::percentile(ratio, 0.25), bench::percentile(ratio, 0.75), 1e3 / each);
}

void report(const contest& what, const shape& size, const std::vector<competitor>& all,
            const times& whole, const times& build, const times& again) {
  std::printf("%s, %llu tasks: %s, median %.0f ns, %.0f of them to build\n", what.name,
              static_cast<unsigned long long>(size.tasks), all[least].name,
              bench::median(whole[least]), bench::median(build[least]));
  for (std::size_t who = 1; who < all.size(); ++who) {
    if (whole[who].empty()) continue;
    print_row_of(all[who].name, whole[who], whole[least], "x",
                 who == cohort_runtime ? what.over_least : 0);
    std::printf("      %.0f ns of them to build\n", bench::median(build[who]));
  }
  if (!whole[taskflow].empty()) {
    print_row_of("cohort over Taskflow", whole[cohort_runtime], whole[taskflow], "x",
                 what.over_taskflow);
  }
  if (what.nanoseconds > 0) {
    bench::print_row("  cohort, a task", bench::median(whole[cohort_runtime]), "ns",
                     what.nanoseconds);
  }
  for (std::size_t who = 0; who < all.size(); ++who) {
    if (again[who].empty() || bench::median(again[who]) <= 0) continue;
    bench::print_row(std::string("  again: ") + all[who].name, bench::median(again[who]), "ns",
                     who == cohort_runtime ? 50 : 0);
  }
  std::printf("\n");
}

asio::awaitable<void> compare(const std::vector<competitor>& all, contest what, shape size,
                              int turns) {
  times whole(all.size());
  times build(all.size());
  times again(all.size());
  for (int turn = -2; turn < turns; ++turn) {  // two to warm up
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t who = (i + static_cast<std::size_t>(turn + 2)) % all.size();
      if (!all[who].run) continue;
      const cost took = co_await all[who].run(size);
      if (turn < 0) continue;
      whole[who].push_back(took.build + took.run);
      build[who].push_back(took.build);
      again[who].push_back(took.again);
    }
  }
  report(what, size, all, whole, build, again);
}

asio::awaitable<cost> ready(cost took) { co_return took; }

/// What is not there has no function.
std::function<asio::awaitable<cost>(const shape&)> plain(cost (*run)(const shape&), bool present) {
  if (!present) return nullptr;
  return [run](const shape& what) { return ready(run(what)); };
}

asio::awaitable<void> measure(cohort::communicator world, std::uint64_t tasks, int turns,
                              std::string only) {
  cohort::graph::tasks graphs{world};
  std::vector<competitor> all(5);
  all[least] = {"the least program", plain(floor_program::run, true)};
  all[cohort_runtime] = {"cohort", [&](const shape& w) { return with_cohort::run(graphs, w); }};
  all[cohort_machine] = {"cohort, the machine alone", plain(with_machine::run, true)};
  all[openmp] = {"OpenMP, task depend", plain(with_openmp::run, with_openmp::present())};
  all[taskflow] = {"Taskflow", plain(with_taskflow::run, with_taskflow::present())};
  constexpr contest contests[] = {
      {"independent", pattern::independent, 0, 0, 200},
      {"chain", pattern::chain, 2, 1.5, 0},
      {"chain of updates in place", pattern::take_chain, 0, 0, 0},
      {"two dependencies", pattern::wavefront, 2, 1.5, 0},
  };
  for (const contest& one : contests) {
    if (!only.empty() && only != one.name) continue;
    co_await compare(all, one, shape::with(one.of, tasks), turns);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t tasks = 100'000;
  int turns = 40;
  std::string only;
  CLI::App app("What a task costs on one rank");
  app.add_option("--tasks", tasks, "tasks of each graph")->check(CLI::Range(4, 100'000'000));
  app.add_option("--turns", turns, "runs of each competitor");
  app.add_option("--only", only, "name of one pattern");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  asio::io_context io;
  cohort::communicator world(io);
  if (world.size() != 1) {
    std::fprintf(stderr, "this benchmark needs one rank\n");
    return 1;
  }
  bench::print_machine(world.size());
  if (!with_openmp::present()) std::printf("without OpenMP\n");
  if (!with_taskflow::present()) std::printf("without Taskflow, see -DTASKFLOW_DIR\n");
#ifdef M_MMAP_THRESHOLD
  // So that nobody pays for pages that malloc has given back after the turn before.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
  asio::co_spawn(io, measure(world, tasks, turns, only), cohort::rethrow);
  io.run();
}
