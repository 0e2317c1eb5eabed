// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The checker of the task graph's machine as a program.
//
//   jobs random FIRST COUNT [--ranks N]    random jobs with these seeds; prints what was used
//   jobs damaged FIRST COUNT [--ranks N]   some packets arrive with other bytes; nothing crashes
//   jobs trace SEED [--ranks N]            one of them, every event and message
//   jobs trace-damaged SEED [--ranks N]
//   jobs small [NAME|all]                  every interleaving of the small jobs, or of one of them
//
// Ends with 1 at the first violation, after naming the seed or the job that repeats it.

#include "graph/jobs.hpp"
#include "graph/small.hpp"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

namespace {

using namespace graph_test;

/// An event that does not end is a violation too: jobs take milliseconds.
void watch() {
  std::signal(SIGALRM, [](int) {
    static constexpr char text[] = "VIOLATION an event of a job does not end\n";
    static_cast<void>(write(STDOUT_FILENO, text, sizeof text - 1) == 0);
    _exit(1);
  });
  alarm(30);
}

int random_jobs(std::uint64_t first, std::uint64_t count, int ranks, bool damaged) {
  std::map<std::string, std::uint64_t> hits;
  std::uint64_t events = 0;
  std::uint64_t strict = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    watch();
    try {
      const auto job = random_world(seed, ranks, damaged);
      events += job->seen().steps;
      strict += job->what().strict ? 1 : 0;
      for (const auto& [what, times] : job->seen().hits) hits[std::string(what)] += times;
      for (const auto& [what, times] : job->messages().counts()) {
        hits["message " + std::string(what)] += times;
      }
    } catch (const std::exception& problem) {
      std::printf("VIOLATION in job %llu of this run, seed %llu: %s\n",
                  static_cast<unsigned long long>(seed - first + 1),
                  static_cast<unsigned long long>(seed), problem.what());
      return 1;
    }
  }
  alarm(0);
  for (const auto& [what, times] : hits) {
    std::printf("%10llu %s\n", static_cast<unsigned long long>(times), what.c_str());
  }
  std::printf("%llu jobs from seed %llu, %llu of them strict, %llu events: no violation\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(strict), static_cast<unsigned long long>(events));
  return 0;
}

void print(const job& what) {
  std::cout << what.ranks << " ranks, eager " << what.eager << ", credit " << what.credit
            << ", tags " << what.tags << (what.strict ? ", strict" : "")
            << (what.misuse ? ", misuse" : "") << (what.uniform ? ", uniform" : "")
            << (what.timed ? ", timed" : "") << ", deaths " << what.deaths << '\n';
  for (const scope_job& scope : what.scopes) {
    std::cout << "scope\n";
    for (std::size_t i = 0; i < scope.specs.size(); ++i) {
      const spec& one = scope.specs[i];
      std::cout << "  #" << i << ": " << one.name << ", function " << one.function;
      for (const use& dep : one.deps) {
        std::cout << (dep.how == use_kind::take    ? " take "
                      : dep.how == use_kind::after ? " after "
                                                   : " ")
                  << dep.task;
      }
      if (one.put) std::cout << " put";
      if (one.fails) std::cout << " fails";
      if (one.local) std::cout << " local";
      if (one.size > 1) std::cout << " large";
      for (const int child : one.children) std::cout << " spawns #" << child;
      std::cout << '\n';
    }
    for (std::size_t rank = 0; rank < scope.ranks.size(); ++rank) {
      for (const program& steps : scope.ranks[rank]) {
        std::cout << "  rank " << rank << ":";
        for (const operation& one : steps) std::cout << ' ' << one << ';';
        std::cout << '\n';
      }
    }
  }
  std::cout.flush();
}

int trace(std::uint64_t seed, int ranks, bool damaged) {
  watch();
  try {
    random_world(seed, ranks, damaged, [](const world& made) { print(made.what()); });
    std::puts("no violation");
    return 0;
  } catch (const std::exception& problem) {
    std::printf("VIOLATION %s\n", problem.what());
    return 1;
  }
}

int small(const std::string& only) {
  int found = 0;
  for (const small_job& job : small_jobs()) {
    if (!only.empty() && only != "all" && only != job.name) continue;
    ++found;
    const auto start = std::chrono::steady_clock::now();
    try {
      const exploration result = explore(job, 2'000'000);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      std::printf("%-26s %7zu states, %3zu final, %s, %.1f s\n", job.name, result.states,
                  result.ends, result.complete ? "all" : "LIMIT", took.count());
      std::fflush(stdout);
      if (!result.complete) return 1;
    } catch (const std::exception& problem) {
      std::printf("%-26s VIOLATION %s\n", job.name, problem.what());
      return 1;
    }
  }
  if (found == 0) std::puts("there is no such job");
  return found == 0 ? 1 : 0;
}

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

}  // namespace

int main(int argc, char** argv) {
  int ranks = 0;
  if (argc > 3 && std::strcmp(argv[argc - 2], "--ranks") == 0) {
    ranks = static_cast<int>(number(argv[argc - 1]));
    argc -= 2;
  }
  const std::string_view what = argc > 1 ? argv[1] : "";
  if ((what == "random" || what == "damaged") && argc == 4) {
    return random_jobs(number(argv[2]), number(argv[3]), ranks, what == "damaged");
  }
  if ((what == "trace" || what == "trace-damaged") && argc == 3) {
    return trace(number(argv[2]), ranks, what == "trace-damaged");
  }
  if (what == "small") return small(argc > 2 ? argv[2] : "all");
  std::puts(
      "usage: jobs random FIRST COUNT [--ranks N] | jobs damaged FIRST COUNT [--ranks N] |"
      " jobs trace SEED [--ranks N] | jobs trace-damaged SEED [--ranks N] | jobs small [NAME|all]");
  return 2;
}
