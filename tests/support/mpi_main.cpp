// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The main of the tests that run under mpiexec: `mpirun -np 3 TEST [--thread-level=LEVEL] [Catch2's
// arguments]`.
//
// 1. Every rank runs every test case. Rank 0 prints as Catch2 does; what the others would print is
//    kept, and shown with the rank before each line only if they fail.
// 2. After each test case the ranks agree whether it failed anywhere. A rank that failed alone has
//    probably left the others waiting inside a collective call; it gives them five seconds (see
//    patience.hpp) to arrive and then ends the job, so that the reason is printed and not a
//    timeout.
// 3. Every rank exits with a non-zero status if any rank failed.
//
// tests/gpu/nccl/on_gpu_main.cpp includes this file: on real devices it also tells what was
// skipped.
//
// The agreement calls MPI by its profiling names, so that a test which supplies its own MPI_*
// functions sees only what the library calls.
#if !defined(CATCH_CONFIG_EXTERNAL_INTERFACES)
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#endif
#include "support/catch.hpp"
#if __has_include(<catch2/reporters/catch_reporter_event_listener.hpp>)
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using listener_base = Catch::EventListenerBase;
#else
using listener_base = Catch::TestEventListenerBase;
#endif

#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cohort/mpi/environment.hpp"
#include "cohort/mpi/lock.hpp"
#include "cohort/mpi/native.hpp"
#include "support/catch_run.hpp"
#include "support/patience.hpp"

namespace {

MPI_Comm agreement = MPI_COMM_NULL;
int rank = 0;
bool failed_in_a_case = false;
std::ostringstream held_output;

#if defined(COHORT_TEST_ON_GPU)
std::vector<std::string> unchecked;  // names of test cases
#endif

/// Prints what this rank has held back, each line with the rank before it.
void show_held_output() {
  std::istringstream lines{held_output.str()};
  held_output.str({});
  for (std::string line; std::getline(lines, line);) {
    std::fprintf(stderr, "[rank %d] %s\n", rank, line.c_str());
  }
}

/// Collective over all ranks: whether anything failed on any of them.
bool failed_anywhere(bool failed_here, const std::string& where) {
  int finalized = 0;
  PMPI_Finalized(&finalized);
  if (finalized != 0) return failed_here;  // the test case was about that: nothing to agree with

  const int here = failed_here ? 1 : 0;
  int anywhere = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const cohort::mpi::lock guard;
    PMPI_Iallreduce(&here, &anywhere, 1, MPI_INT, MPI_MAX, agreement, &request);
  }
  const auto deadline =
      std::chrono::steady_clock::now() + cohort_test::patient(std::chrono::seconds{5});
  for (;;) {
    int done = 0;
    {
      const cohort::mpi::lock guard;
      PMPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    if (done != 0) return anywhere != 0;
    if (failed_here && std::chrono::steady_clock::now() > deadline) {
      std::fprintf(stderr, "[rank %d] failed in %s, which other ranks have not left: job aborted\n",
                   rank, where.c_str());
      PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
}

// Catch2 2 keeps the test case's facts by value, version 3 by pointer.
[[maybe_unused]] const std::string& name_of(const Catch::TestCaseInfo& info) { return info.name; }
[[maybe_unused]] const std::string& name_of(const Catch::TestCaseInfo* info) { return info->name; }

class rank_listener : public listener_base {
 public:
  using listener_base::listener_base;

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const bool failed = stats.totals.testCases.failed != 0;
    const std::string& name = name_of(stats.testInfo);
    if (failed) {
      failed_in_a_case = true;
      show_held_output();
      std::fprintf(stderr, "[rank %d] failed: %s\n", rank, name.c_str());
    }
    failed_in_a_case |= failed_anywhere(failed, name);
#if defined(COHORT_TEST_ON_GPU)
    if (stats.totals.assertions.total() == 0) unchecked.push_back(name);
#endif
  }
};
CATCH_REGISTER_LISTENER(rank_listener)

cohort::thread_level level_named(std::string_view name) {
  if (name == "single") return cohort::thread_level::single;
  if (name == "funneled") return cohort::thread_level::funneled;
  if (name == "multiple") return cohort::thread_level::multiple;
  return cohort::thread_level::serialized;
}

}  // namespace

int main(int argc, char** argv) {
  auto level = cohort::thread_level::serialized;
  constexpr std::string_view option = "--thread-level=";
  if (argc > 1 && std::string_view{argv[1]}.starts_with(option)) {
    level = level_named(std::string_view{argv[1]}.substr(option.size()));
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  cohort::environment env{argc, argv, level};
  PMPI_Comm_dup(MPI_COMM_WORLD, &agreement);
  PMPI_Comm_rank(agreement, &rank);
#if defined(COHORT_TEST_ON_GPU)
  if (const int status = cohort_test::look_for_devices(); status != 0) {
    PMPI_Comm_free(&agreement);
    return status;
  }
#endif

  std::streambuf* const terminal = std::cout.rdbuf();
  if (rank != 0) std::cout.rdbuf(held_output.rdbuf());
  const bool failed_here = cohort_test::run_catch(argc, argv) != 0;
  std::cout.rdbuf(terminal);
#if defined(COHORT_TEST_ON_GPU)
  if (rank == 0) {
    cohort_test::tell_skipped();
    cohort_test::tell_skipped(unchecked, "they need more ranks, or more devices in a rank");
  }
#endif
  if (failed_here && !failed_in_a_case) show_held_output();  // a wrong argument, for example

  const bool failed = failed_anywhere(failed_here || failed_in_a_case, "the whole run");
  if (failed && rank == 0 && !failed_here) std::fputs("Failed on another rank.\n", stderr);
  int finalized = 0;
  PMPI_Finalized(&finalized);
  if (finalized == 0) PMPI_Comm_free(&agreement);
  return failed ? 1 : 0;
}
