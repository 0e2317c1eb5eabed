// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

#ifdef COHORT_BENCH_TASKFLOW

#include <taskflow/taskflow.hpp>

#include <vector>

namespace with_taskflow {
namespace {

/// Values lie in an array, as programs that use Taskflow have them.
void build(tf::Taskflow& flow, std::vector<std::uint64_t>& made, const shape& what) {
  if (what.of != pattern::wavefront) {
    tf::Task before;
    std::uint64_t* const value = made.data();
    for (std::uint64_t i = 0; i < what.tasks; ++i) {
      if (what.of == pattern::independent) {
        flow.emplace([value, i] { value[i] = 1; });
        continue;
      }
      const bool in_place = what.of == pattern::take_chain;
      tf::Task next = in_place ? flow.emplace([value] { ++value[0]; })
                               : flow.emplace([value, i] { value[i + 1] = value[i] + 1; });
      if (i > 0) before.precede(next);
      before = next;
    }
    return;
  }
  std::vector<tf::Task> row(what.side);
  for (std::uint64_t i = 1; i <= what.side; ++i) {
    for (std::uint64_t j = 1; j <= what.side; ++j) {
      std::uint64_t* const value = made.data() + i * (what.side + 1) + j;
      std::uint64_t* const above = value - (what.side + 1);
      tf::Task next = flow.emplace([value, above] { *value = *above + value[-1] + 1; });
      if (i > 1) row[j - 1].precede(next);
      if (j > 1) row[j - 2].precede(next);
      row[j - 1] = next;
    }
  }
}

}  // namespace

bool present() noexcept { return true; }

cost run(const shape& what) {
  static tf::Executor executor(1);
  const auto each = static_cast<double>(what.tasks);
  cost took;
  double start = processor_time();
  std::vector<std::uint64_t> made(what.of == pattern::wavefront ? (what.side + 1) * (what.side + 1)
                                                                : what.tasks + 1);
  tf::Taskflow flow;
  build(flow, made, what);
  took.build = (processor_time() - start) / each;
  start = processor_time();
  executor.run(flow).wait();
  took.run = (processor_time() - start) / each;
  what.check(what.of == pattern::take_chain    ? made.front()
             : what.of == pattern::independent ? made[what.tasks - 1]
                                               : made.back(),
             "Taskflow");
  start = processor_time();
  executor.run(flow).wait();
  took.again = (processor_time() - start) / each;
  start = processor_time();
  flow.clear();
  took.run += (processor_time() - start) / each;
  return took;
}

}  // namespace with_taskflow

#else

namespace with_taskflow {

bool present() noexcept { return false; }
cost run(const shape&) { return {}; }

}  // namespace with_taskflow

#endif
