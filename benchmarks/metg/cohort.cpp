// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <vector>

namespace with_cohort {
namespace {

namespace graph = cohort::graph;
using support::stamp;

stamp run_point(long step, long point, long rounds, std::uint64_t expected,
                std::span<const stamp> inputs) {
  support::read_digest digest;
  for (const stamp& one : inputs) digest.add(one.step == step - 1 ? one.point : -1);
  if (digest.word() != expected) throw std::runtime_error("a task has not read what it should");
  support::work(rounds);
  return {step, point};
}

int home_of(graph::indices step_and_point, int ranks, long width) {
  return part_of(step_and_point[1], ranks, width);
}

asio::awaitable<void> run_steps(graph::scope& scope, dependence_pattern pattern, long rounds) {
  auto points = scope.tasks<&run_point>("point", graph::placement::by<&home_of>(pattern.width));
  std::vector<long> reads;
  std::vector<graph::task<stamp>> inputs;
  for (long step = 0; step < pattern.steps; ++step) {
    for (long point = 0; point < pattern.width; ++point) {
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

/// The same in windows of some steps, the tasks of which are spawned once and run again and again.
/// What the last step of a window makes is put for the first step of the next.
asio::awaitable<void> run_windows(graph::scope& scope, dependence_pattern pattern, long steps,
                                  long rounds) {
  const auto home = graph::placement::by<&home_of>(pattern.width);
  auto points = scope.tasks<&run_point>("point", home);
  auto before = scope.tasks<stamp>("before", home);
  std::vector<long> reads;
  std::vector<graph::task<stamp>> inputs;
  for (long step = 0; step < steps; ++step) {
    for (long point = 0; point < pattern.width; ++point) {
      pattern.reads(step + 1, point, reads);
      support::read_digest expected;
      inputs.clear();
      for (const long one : reads) {
        expected.add(one);
        if (step == 0) {
          inputs.push_back(before(0, one));
        } else {
          inputs.push_back(points(step - 1, one));
        }
      }
      points(step, point).spawn(step, point, rounds, expected.word(), inputs);
    }
  }
  std::vector<long> mine;
  for (long point = 0; point < pattern.width; ++point) {
    if (before(0, point).here()) mine.push_back(point);
  }
  std::vector<stamp> row(mine.size());
  for (std::size_t i = 0; i < mine.size(); ++i) row[i].point = mine[i];
  for (long left = pattern.steps / steps; left > 0; --left) {
    for (std::size_t i = 0; i < mine.size(); ++i) before(0, mine[i]).put(stamp{-1, row[i].point});
    for (std::size_t i = 0; i < mine.size(); ++i)
      row[i] = co_await points(steps - 1, mine[i]).get();
    if (left > 1) co_await scope.again();
  }
}

}  // namespace

asio::awaitable<void> run(graph::tasks& graphs, dependence_pattern pattern, long rounds) {
  co_await graphs.run("metg", &run_steps, pattern, rounds);
}

asio::awaitable<void> run_again(graph::tasks& graphs, dependence_pattern pattern, long rounds) {
  long steps = std::min(50L, pattern.steps);
  while (pattern.steps % steps != 0) --steps;
  co_await graphs.run("metg again", &run_windows, pattern, steps, rounds);
}

}  // namespace with_cohort
