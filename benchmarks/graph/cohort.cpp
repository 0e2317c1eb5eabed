// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

namespace with_cohort {
namespace {

namespace graph = cohort::graph;
using graph::take;
using value = graph::task<std::uint64_t>;

std::uint64_t next(std::uint64_t read) { return read + 1; }
std::uint64_t add(std::uint64_t above, std::uint64_t left) { return above + left + 1; }
std::uint64_t one() { return 1; }

/// Names the last task.
value spawn_all(graph::scope& scope, const shape& what) {
  const auto here = graph::on(0);
  if (what.of == pattern::independent) {
    auto tasks = scope.tasks<&one>("one", here);
    for (std::uint64_t i = 0; i < what.tasks; ++i) tasks(i).spawn();
    return tasks(what.tasks - 1);
  }
  const value zero = scope.tasks<std::uint64_t>("zero", here)();
  if (what.of == pattern::wavefront) {
    auto at = scope.tasks<&add>("at", here);
    for (std::uint64_t i = 0; i < what.side; ++i) {
      for (std::uint64_t j = 0; j < what.side; ++j) {
        at(i, j).spawn(i > 0 ? at(i - 1, j) : zero, j > 0 ? at(i, j - 1) : zero);
      }
    }
    return at(what.side - 1, what.side - 1);
  }
  auto at = scope.tasks<&next>("at", here);
  for (std::uint64_t i = 0; i < what.tasks; ++i) {
    const value before = i > 0 ? value(at(i - 1)) : zero;
    what.of == pattern::chain ? at(i).spawn(before) : at(i).spawn(take(before));
  }
  return at(what.tasks - 1);
}

asio::awaitable<void> program(graph::scope& scope, shape what, cost* took) {
  const auto each = static_cast<double>(what.tasks);
  auto zero = scope.tasks<std::uint64_t>("zero", graph::on(0));
  double start = processor_time();
  if (what.of != pattern::independent) zero().put(0);
  value last = spawn_all(scope, what);
  took->build = (processor_time() - start) / each;
  start = processor_time();
  const std::uint64_t made = co_await last.get();
  co_await scope.fence();
  took->run = (processor_time() - start) / each;
  what.check(made, "cohort");
  if (what.of != pattern::independent) zero().put(0);
  spawn_all(scope, what);
  co_await scope.again();
  start = processor_time();
  if (what.of != pattern::independent) zero().put(0);
  co_await scope.again();
  took->again = (processor_time() - start) / each;
  if (what.of != pattern::independent) zero().put(0);
  const auto report = co_await scope.fence();
  if (report.failed != 0) throw graph::error(report);
}

}  // namespace

asio::awaitable<cost> run(graph::tasks& graphs, shape what) {
  cost took;
  co_await graphs.run("cost of a task", &program, what, &took);
  co_return took;
}

}  // namespace with_cohort
