// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The ways in which a program ends whose main is cohort::cluster::run. A part of the program in
// main.cpp, and what its workers run too.

#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/run.hpp>
#include <cohort/cluster/workers.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

int run_ending(const std::string& ending, int argc, char** argv);

namespace {

/// Workers that come to the same place as their manager.
cohort::cluster::launch_options two_for(const std::string& ending) {
  return cohort::cluster::launch_options{}.ranks(2).arguments({ending});
}

int doubled(int number) { return 2 * number; }

asio::awaitable<int> asks_workers(asio::io_context& io, int argc, char**) {
  auto launching = cohort::cluster::launch(io, two_for("run_manages"));
  auto workers = co_await std::move(launching);
  const int answer = co_await workers.call<&doubled>(1, 21);
  std::printf("%d arguments, the answer is %d\n", argc, answer);
  co_await workers.shutdown();
  co_return 5;
}

asio::awaitable<void> fails_with_workers(asio::io_context& io) {
  auto launching = cohort::cluster::launch(io, two_for("run_throws"));
  const auto workers = co_await std::move(launching);
  throw std::runtime_error("the manager cannot open its file");
}

asio::awaitable<int> manager_in_mpi(cohort::communicator world) {
  int answer = 0;
  {
    auto& io = world.get_executor().context();
    auto launching = cohort::cluster::launch(io, two_for("run_in_mpi"));
    auto workers = co_await std::move(launching);
    answer = co_await workers.call<&doubled>(0, 21 * world.size());
    co_await workers.shutdown();
  }
  std::printf("a manager that has MPI is answered %d\n", answer);
  co_return 0;
}

/// A worker whose manager is not there.
int without_manager(int argc, char** argv) {
  ::setenv("COHORT_CLUSTER_TOKEN", "00112233445566778899aabbccddeeff", 1);
  ::setenv("COHORT_CLUSTER_MANAGER", "127.0.0.1:1", 1);
  return cohort::cluster::run(argc, argv, fails_with_workers);
}

}  // namespace

int run_ending(const std::string& ending, int argc, char** argv) {
  const char* const file = std::getenv("COHORT_TEST_STDERR");
  if (file != nullptr && std::getenv("COHORT_CLUSTER_TOKEN") == nullptr) {
    ::dup2(::open(file, O_WRONLY | O_APPEND), STDERR_FILENO);
  }
  const std::map<std::string, std::function<int()>> endings = {
      {"run_manages", [&] { return cohort::cluster::run(argc, argv, asks_workers); }},
      {"run_throws", [&] { return cohort::cluster::run(argc, argv, fails_with_workers); }},
      {"run_in_mpi", [&] { return cohort::cluster::run(argc, argv, manager_in_mpi); }},
      {"run_without_manager", [&] { return without_manager(argc, argv); }},
  };
  return endings.at(ending)();
}
