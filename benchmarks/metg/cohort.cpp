// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

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

}  // namespace

asio::awaitable<void> run(graph::tasks& graphs, dependence_pattern pattern, long rounds) {
  co_await graphs.run("metg", &run_steps, pattern, rounds);
}

}  // namespace with_cohort
