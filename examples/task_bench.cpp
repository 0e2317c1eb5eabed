// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The eleven dependence patterns of Task Bench as graphs of tasks. Each task checks what it has
// read and works for a while. Printed is how long tasks must take so that half of the time is work:
// METG(50 %), the minimum effective task granularity.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cohort/cohort.hpp>
#include <cohort/graph.hpp>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>
#include "support/dependence_patterns.hpp"
#include "support/granularity_search.hpp"

namespace graph = cohort::graph;
using support::dependence_pattern, support::stamp;

/// `expected`: the digest of the points that it is to read.
stamp run_point(long step, long point, long rounds, std::uint64_t expected,
                std::span<const stamp> inputs) {
  support::read_digest digest;
  for (const stamp& one : inputs) digest.add(one.step == step - 1 ? one.point : -1);
  if (digest.word() != expected) {
    throw std::runtime_error("step " + std::to_string(step) + ", point " + std::to_string(point) +
                             ": has not read what it should");
  }
  support::work(rounds);
  return {step, point};
}

/// A row is cut into parts of almost equal size, one for each rank.
int part_of(graph::indices step_and_point, int ranks, long width) {
  return int(step_and_point[1] * ranks / width);
}

asio::awaitable<void> run_steps(graph::scope& scope, dependence_pattern pattern, long rounds) {
  auto points = scope.tasks<&run_point>("point", graph::placement::by<&part_of>(pattern.width));
  std::vector<long> reads;
  std::vector<graph::task<stamp>> inputs;
  for (long step = 0; step < pattern.steps; ++step) {
    const auto range = pattern.points(step);
    for (long point = range.first; point < range.end; ++point) {
      pattern.reads(step, point, reads);
      support::read_digest expected;
      inputs.clear();
      for (const long one : reads) {
        expected.add(one);
        inputs.push_back(points(step - 1, one));
      }
      points(step, point).spawn(step, point, rounds, expected.word(), inputs);
    }
  }
  co_return;  // `run` ends the window, and throws what has failed
}

/// Nanoseconds of one core for each task, the slowest rank's.
asio::awaitable<double> time_of(cohort::communicator world, graph::tasks& graphs,
                                dependence_pattern pattern, long rounds) {
  co_await cohort::barrier(world);
  const auto start = std::chrono::steady_clock::now();
  co_await graphs.run("task bench", &run_steps, pattern, rounds);
  double took =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  co_await cohort::all_reduce(world, took, cohort::op::max);
  co_return took* double(std::min<long>(world.size(), pattern.width)) / double(pattern.tasks());
}

/// Of the work alone, while all ranks work.
asio::awaitable<double> work_of(cohort::communicator world, long rounds) {
  const long repeated = 1 + 20'000 / (rounds + 1);
  co_await cohort::barrier(world);
  const auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < repeated; ++i) support::work(rounds);
  double took =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  co_await cohort::all_reduce(world, took, cohort::op::min);
  co_return took / double(repeated);
}

asio::awaitable<void> measure(cohort::communicator world, dependence_pattern pattern, long rounds,
                              std::string name) {
  graph::tasks graphs{world};
  const bool shown = world.rank() == 0;
  if (rounds >= 0) {
    const double each = co_await time_of(world, graphs, pattern, rounds);
    if (shown) std::printf("%-20s %9.3f us a task\n", name.c_str(), each / 1000);
    co_return;
  }
  support::granularity_search search;
  while (!search.done()) {
    const double work = co_await work_of(world, search.rounds());
    search.tried(co_await time_of(world, graphs, pattern, search.rounds()), work);
  }
  if (shown && search.found()) {
    std::printf("%-20s METG(50 %%) %9.3f us\n", name.c_str(), search.metg() / 1000);
  } else if (shown) {
    std::printf("%-20s METG(50 %%) not reached: the graph leaves ranks idle\n", name.c_str());
  }
}

asio::awaitable<void> run(cohort::communicator world, dependence_pattern pattern, long rounds,
                          std::string only) {
  for (std::size_t i = 0; i < support::dependence_names.size(); ++i) {
    const std::string name = support::dependence_names[i];
    pattern.kind = support::dependence(i);
    if (only == "all" || only == name) co_await measure(world, pattern, rounds, name);
  }
}

int main(int argc, char** argv) {
  dependence_pattern pattern;
  long rounds = -1;
  std::string only = "all";
  CLI::App app{"Runs the dependence patterns of Task Bench as graphs of tasks."};
  const std::vector<std::string> names(support::dependence_names.begin(),
                                       support::dependence_names.end());
  app.add_option("--pattern", only, "one of the patterns")
      ->check(CLI::IsMember(names) | CLI::IsMember({"all"}));
  app.add_option("--width", pattern.width)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", pattern.steps)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--radix", pattern.radix)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--rounds", rounds, "work in each task, about 10 ns each; else METG is searched");
  CLI11_PARSE(app, argc, argv);
  return cohort::run(argc, argv,
                     [&](cohort::communicator world) { return run(world, pattern, rounds, only); });
}
