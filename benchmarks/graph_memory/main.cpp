// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What does a graph keep in memory? Tasks in many windows, of which nothing may stay, and one chain
// of updates in place, which may have one value at a time and never a copy. Fails if the memory or
// the values grow after the first percent; the bytes of a task that waits are printed.

#include "support/report.hpp"

#include <cohort/cohort.hpp>
#include <cohort/graph.hpp>

#include <CLI/CLI.hpp>

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace graph = cohort::graph;
using graph::take;

/// A value that counts itself.
class counted {
 public:
  counted() { enter(); }
  counted(const counted& other) : data(other.data) {
    ++copies;
    enter();
  }
  counted(counted&& other) noexcept : data(other.data) { enter(); }
  counted& operator=(const counted& other) {
    ++copies;
    data = other.data;
    return *this;
  }
  counted& operator=(counted&& other) noexcept = default;
  ~counted() { --alive; }

  std::array<std::uint64_t, 16> data{};

  static inline long alive = 0;
  static inline long most_alive = 0;
  static inline long copies = 0;

 private:
  static void enter() { most_alive = std::max(most_alive, ++alive); }
};

template <class Archive>
void wire_fields(Archive& archive, counted& one) {
  archive(one.data);
}

counted advance(counted one) {
  ++one.data[0];
  return one;
}

struct sample {
  long bytes = 0;  ///< that the program has from malloc
  long pages = 0;  ///< bytes that the system has given it
  long values = 0;
};

sample now() {
  const auto all = mallinfo2();
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return {static_cast<long>(all.uordblks + all.hblkhd), pages * sysconf(_SC_PAGESIZE),
          counted::alive};
}

/// Throws if there is more than after the first percent. Buffers for what is on its way between
/// ranks grow to what was the most at once, which takes its time: a tenth more is allowed, and one
/// byte for each task that has run. Whatever a task kept would be sixty and more.
void check_flat(const std::vector<sample>& all, long of_window, const char* what) {
  const std::size_t begin = std::max<std::size_t>(1, all.size() / 100);
  const auto check = [&](const char* of, long sample::* part, long allowed, long for_each) {
    for (std::size_t i = begin; i < all.size(); ++i) {
      const long run = static_cast<long>(i - begin) * of_window;
      if (all[i].*part <= all[begin].*part + allowed + for_each * run) continue;
      throw std::runtime_error(std::string(what) + ": " + std::to_string(all[i].*part) + " " + of +
                               " in window " + std::to_string(i) + ", " +
                               std::to_string(all[begin].*part) + " after the first percent");
    }
  };
  check("values", &sample::values, 0, 0);
  check("bytes in use", &sample::bytes, all[begin].bytes / 10 + (1 << 17), 1);
  check("bytes of pages", &sample::pages, all[begin].pages / 10, 1);
}

/// What is in use in the midst of each window, and after it.
struct windows {
  sample before;
  std::vector<sample> within;
  std::vector<sample> after;
};

/// A window is as many chains as it has tasks in a hundred.
asio::awaitable<void> run_windows(graph::scope& scope, long count, long tasks, windows* seen) {
  auto start = scope.tasks<counted>("start");
  auto next = scope.tasks<&advance>("next");
  seen->before = now();
  const long chains = std::max(1L, tasks / 100);
  const long length = tasks / chains;
  for (long w = 0; w < count; ++w) {
    for (long c = 0; c < chains; ++c) {
      if (start(c).here()) start(c).put(counted());
      for (long i = 0; i < length; ++i) {
        i == 0 ? next(c, i).spawn(take(start(c))) : next(c, i).spawn(take(next(c, i - 1)));
      }
    }
    seen->within.push_back(now());
    const auto report = co_await scope.fence();
    if (report.failed != 0) throw graph::error(report);
    seen->after.push_back(now());
  }
}

struct chain {
  sample before;
  sample spawned;
  long most_alive = 0;
  long copies = 0;
};

/// Each update is on one of the ranks by turns, a hundred at a time.
int by_turns(graph::indices where, int ranks) { return static_cast<int>(where[0] / 100 % ranks); }

asio::awaitable<void> run_chain(graph::scope& scope, long tasks, chain* seen) {
  auto start = scope.tasks<counted>("start", graph::on(0));
  auto next = scope.tasks<&advance>("next", graph::placement::by<&by_turns>());
  seen->before = now();
  counted::most_alive = counted::alive;
  counted::copies = 0;
  if (start().here()) start().put(counted());
  next(0).spawn(take(start()));
  for (long i = 1; i < tasks; ++i) next(i).spawn(take(next(i - 1)));
  seen->spawned = now();
  if (next(tasks - 1).here()) {
    const counted last = co_await take(next(tasks - 1)).get();
    if (last.data[0] != static_cast<std::uint64_t>(tasks)) {
      throw std::runtime_error("the chain has made " + std::to_string(last.data[0]) + " updates");
    }
  }
  const auto report = co_await scope.fence();
  if (report.failed != 0) throw graph::error(report);
  seen->most_alive = counted::most_alive;
  seen->copies = counted::copies;
}

double each(long all, long count) { return static_cast<double>(all) / static_cast<double>(count); }

asio::awaitable<void> measure(cohort::communicator world, long tasks, long of_window) {
  graph::tasks graphs{world};
  const bool shown = world.rank() == 0;
  const long count = std::max(2L, tasks / of_window);
  windows seen;
  seen.within.reserve(static_cast<std::size_t>(count));
  seen.after.reserve(static_cast<std::size_t>(count));
  co_await graphs.run("windows", &run_windows, count, of_window, &seen);
  check_flat(seen.within, of_window, "in the midst of a window");
  check_flat(seen.after, of_window, "after a window");
  if (shown) {
    std::printf("%ld tasks in windows of %ld, rank 0 of %d: flat\n", count * of_window, of_window,
                world.size());
    bench::print_row("  bytes in use in the midst of a window, for each task of it",
                     each(seen.within.back().bytes - seen.before.bytes, of_window), "B");
    bench::print_row("  bytes in use between windows, for each task of one",
                     each(seen.after.back().bytes - seen.before.bytes, of_window), "B");
    bench::print_row("  values between windows", each(seen.after.back().values, 1), "");
  }

  chain one;
  co_await graphs.run("chain", &run_chain, tasks, &one);
  // One that a task has, one that it makes, one on its way into the graph and one out of it.
  if (one.most_alive > 4) {
    throw std::runtime_error("a chain of updates in place had " + std::to_string(one.most_alive) +
                             " values at once");
  }
  if (one.copies > 0) {
    throw std::runtime_error("a chain of updates in place has made " + std::to_string(one.copies) +
                             " copies");
  }
  if (shown) {
    std::printf("a chain of %ld updates in place\n", tasks);
    bench::print_row("  values at once, at most", each(one.most_alive, 1), "");
    bench::print_row("  copies", each(one.copies, 1), "");
    bench::print_row("  bytes of a task that waits",
                     each(one.spawned.bytes - one.before.bytes, tasks), "B");
  }
}

}  // namespace

int main(int argc, char** argv) {
  long tasks = 1'000'000;
  long of_window = 10'000;
  CLI::App app("What a graph keeps in memory");
  app.add_option("--tasks", tasks, "all in all")->check(CLI::PositiveNumber);
  app.add_option("--window", of_window, "tasks of a window")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  return cohort::run(argc, argv,
                     [&](cohort::communicator world) { return measure(world, tasks, of_window); });
}
