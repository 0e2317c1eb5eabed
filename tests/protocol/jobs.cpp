// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The checker of the protocol as a program.
//
//   jobs random FIRST COUNT    random jobs with these seeds; prints how often rules were used
//   jobs trace SEED            one of them, every message and log item
//   jobs small [NAME]          every interleaving of the small jobs, or of one of them
//   jobs asked [NAME]          the same with a root that decides and sends as a step of its own
//
// Ends with 1 at the first violation, after naming the seed or the job that repeats it.

#include "protocol/jobs.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>

namespace {

using namespace protocol_test;

int random_jobs(std::uint64_t first, std::uint64_t count) {
  std::map<std::string, std::uint64_t> hits;
  std::uint64_t events = 0;
  world::totals all;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    try {
      const auto job = random_world(seed);
      events += job->steps();
      all.operations += job->submitted().operations;
      all.submissions += job->submitted().submissions;
      for (const auto& [what, times] : job->hits()) hits[what] += times;
    } catch (const std::exception& problem) {
      std::printf("VIOLATION in job %llu of this run, seed %llu: %s\n",
                  static_cast<unsigned long long>(seed - first + 1),
                  static_cast<unsigned long long>(seed), problem.what());
      return 1;
    }
  }
  for (const auto& [what, times] : hits) {
    std::printf("%10llu %s\n", static_cast<unsigned long long>(times), what.c_str());
  }
  std::printf(
      "%llu jobs from seed %llu, %llu events, %llu operations, %llu submissions: no violation\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(first),
      static_cast<unsigned long long>(events), static_cast<unsigned long long>(all.operations),
      static_cast<unsigned long long>(all.submissions));
  return 0;
}

int small(const std::string& only, bool asked) {
  for (const small_job& job : small_jobs()) {
    if (!only.empty() && only != job.name) continue;
    const auto start = std::chrono::steady_clock::now();
    try {
      const exploration result = explore(job, asked, 2'000'000);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      std::printf("%-22s %7zu states, %3zu final, %s, %.1f s\n", job.name, result.states,
                  result.ends, result.complete ? "all" : "LIMIT", took.count());
      std::fflush(stdout);
      if (!result.complete) return 1;
    } catch (const std::exception& problem) {
      std::printf("%-22s VIOLATION %s\n", job.name, problem.what());
      return 1;
    }
  }
  return 0;
}

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "random" && argc == 4) return random_jobs(number(argv[2]), number(argv[3]));
  if (what == "small" || what == "asked") return small(argc > 2 ? argv[2] : "", what == "asked");
  if (what == "trace" && argc == 3) {
    try {
      random_world(number(argv[2]), true);
      std::puts("no violation");
      return 0;
    } catch (const std::exception& problem) {
      std::printf("VIOLATION %s\n", problem.what());
      return 1;
    }
  }
  std::puts(
      "usage: jobs random FIRST COUNT | jobs trace SEED | jobs small [NAME] | jobs asked [NAME]");
  return 2;
}
