// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Task Bench itself, on graphs of tasks: its core says who depends on whom, checks what each task
// reads, does the work and reports. Built where -DTASK_BENCH_DIR names a checkout of
// https://github.com/StanfordLegion/task-bench whose core has been made (make -C core). Takes the
// arguments of Task Bench: -steps 1000 -width 8 -type stencil_1d -kernel compute_bound -iter 100

#include <cohort/cohort.hpp>
#include <cohort/graph.hpp>

#include <core.h>

#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace {

namespace graph = cohort::graph;
using bytes = std::vector<char>;

std::unique_ptr<App> app;  // all ranks read the same arguments

/// A row is cut into parts of almost equal size, as Task Bench's program for MPI does.
int home_of(graph::indices step_and_point, int ranks, long width) {
  return static_cast<int>(((step_and_point[1] + 1) * ranks - 1) / width);
}

bytes run_point(long which, long step, long point, std::span<const bytes> inputs) {
  static std::map<std::pair<long, long>, bytes> scratches;
  const TaskGraph& what = app->graphs[static_cast<std::size_t>(which)];
  bytes& scratch = scratches[{which, point}];
  if (scratch.size() != what.scratch_bytes_per_task) {
    scratch.resize(what.scratch_bytes_per_task);
    TaskGraph::prepare_scratch(scratch.data(), scratch.size());
  }
  std::vector<const char*> starts;
  std::vector<std::size_t> sizes;
  for (const bytes& one : inputs) {
    starts.push_back(one.data());
    sizes.push_back(one.size());
  }
  bytes made(what.output_bytes_per_task);
  what.execute_point(step, point, made.data(), made.size(), starts.data(), sizes.data(),
                     inputs.size(), scratch.data(), scratch.size());
  return made;
}

void spawn_all(graph::scope& scope, const TaskGraph& what) {
  auto points = scope.tasks<&run_point>("graph " + std::to_string(what.graph_index),
                                        graph::placement::by<&home_of>(what.max_width));
  std::vector<graph::task<bytes>> inputs;
  for (long step = 0; step < what.timesteps; ++step) {
    const long before = what.offset_at_timestep(step - 1);
    const long before_end = before + what.width_at_timestep(step - 1);
    const long first = what.offset_at_timestep(step);
    for (long point = first; point < first + what.width_at_timestep(step); ++point) {
      inputs.clear();
      for (const auto& [low, high] :
           what.dependencies(what.dependence_set_at_timestep(step), point)) {
        for (long one = std::max(low, before); one <= high && one < before_end; ++one) {
          inputs.push_back(points(step - 1, one));
        }
      }
      points(step, point).spawn(what.graph_index, step, point, inputs);
    }
  }
}

asio::awaitable<void> run_all(graph::scope& scope) {
  for (const TaskGraph& what : app->graphs) spawn_all(scope, what);
  co_return;  // `run` ends the window, and throws what has failed
}

asio::awaitable<void> run(cohort::communicator world, int argc, char** argv) {
  app = std::make_unique<App>(argc, argv);
  if (world.rank() == 0) app->display();
  graph::tasks graphs{world};
  double took = 0;
  for (int turn = 0; turn < 2; ++turn) {  // the second one counts, as in Task Bench's own programs
    co_await cohort::barrier(world);
    const auto start = std::chrono::steady_clock::now();
    co_await graphs.run("task bench", &run_all);
    co_await cohort::barrier(world);
    took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (world.rank() == 0) app->report_timing(took);
}

}  // namespace

int main(int argc, char** argv) { return cohort::run(argc, argv, run); }
