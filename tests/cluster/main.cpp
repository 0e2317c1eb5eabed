// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The tests are the manager; the workers they launch are this program again.

#include <cohort/cluster/serve.hpp>
#include <cohort/cluster/worker/way_to_manager.hpp>
#include <cohort/cluster/worker/worker.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <iostream>
#include <string>

#include "support/catch_run.hpp"

/// In peers_test.cpp.
int run_adopted(int& argc, char**& argv, const std::string& what);
/// In run_endings.cpp.
int run_ending(const std::string& ending, int argc, char** argv);

namespace {

/// What ctest knows, and what Open MPI asks of root; for the launchers of the tests only.
void prepare_environment() {
  if (const char* const launcher = std::getenv("MPIEXEC")) {
    if (*launcher != '\0') ::setenv("COHORT_MPIEXEC", launcher, 0);
  }
  if (::geteuid() == 0) {
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  }
}

/// A worker that does not do what it should: for the tests of launches that fail.
int misbehave(const std::string& how) {
  auto start = cohort::cluster::worker_start::take_from_environment();
  if (!start) return 0;
  if (how == "never_connects") {
    ::sleep(600);
    return 0;
  }
  asio::io_context io;
  cohort::cluster::worker self(io, *std::move(start));
  auto joined = asio::co_spawn(io, self.join(), asio::use_future);
  while (joined.wait_for(std::chrono::seconds(0)) != std::future_status::ready) io.run_one();
  joined.get();
  std::cout << "joined, and leaves" << std::endl;
  std::_Exit(3);
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::string first = argc > 1 ? argv[1] : ""; first.starts_with("run_")) {
    prepare_environment();
    return run_ending(first, argc, argv);
  }
  try {
    const char* const how = std::getenv("COHORT_TEST_WORKER");
    if (how != nullptr && std::getenv("COHORT_CLUSTER_TOKEN") != nullptr) return misbehave(how);
    if (const char* const what = std::getenv("COHORT_TEST_ADOPT")) {
      return run_adopted(argc, argv, what);
    }
    if (const char* const text = std::getenv("COHORT_TEST_BY_HAND")) {
      const std::string both = text;
      const std::size_t space = both.find(' ');
      cohort::cluster::serve(both.substr(0, space), both.substr(space + 1));
      return 0;
    }
    if (cohort::cluster::serve(argc, argv)) return 0;
  } catch (const std::exception& failed) {
    std::cerr << failed.what() << std::endl;
    return 1;
  }
  prepare_environment();
  return cohort_test::run_catch(argc, argv);
}
