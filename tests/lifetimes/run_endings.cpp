// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The ways in which a program ends whose main is cohort::run. A part of the program in endings.cpp.

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/comm/run.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/future.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

int run_ending(const std::string& ending, int argc, char** argv);

/// An MPI that takes an argument out of the list, as MPI may.
extern "C" int MPI_Init_thread(int* argc, char*** argv, int wanted, int* provided) {
  const int result = PMPI_Init_thread(argc, argv, wanted, provided);
  if (argc == nullptr || argv == nullptr) return result;
  char** const end = std::remove_if(
      *argv, *argv + *argc, [](const char* each) { return std::strcmp(each, "--for-mpi") == 0; });
  *argc = static_cast<int>(end - *argv);
  *end = nullptr;
  return result;
}

namespace {

using namespace std::chrono_literals;
using task = asio::awaitable<void>;

asio::awaitable<void> rest(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}

/// Never completes.
task waits_for_a_message(cohort::communicator world) {
  double number = 0;
  co_await cohort::recv(world, number, 0, 7);
}

task meets(cohort::communicator world) {
  double number = 1;
  co_await cohort::all_reduce(world, number, cohort::op::sum);
  if (number != world.size()) throw std::logic_error("wrong sum");
}

/// The last rank throws what it is told to, and the others wait for it in a collective.
template <class Thrown>
auto one_throws(Thrown thrown) {
  return [thrown](cohort::communicator world) -> task {
    asio::co_spawn(world.get_executor(), waits_for_a_message(world), asio::detached);
    co_await meets(world);
    if (world.rank() == world.size() - 1) throw thrown;
    co_await meets(world);
  };
}

task all_throw(cohort::communicator world) {
  co_await meets(world);
  throw std::runtime_error("nobody can open\n  their file\n");
}

/// The others are in MPI_Finalize, or on their way to it.
task throws_after_the_others(cohort::communicator world) {
  co_await meets(world);
  if (world.rank() != world.size() - 1) co_return;
  co_await rest(300ms);
  throw std::runtime_error("too late to write its file");
}

/// Somebody ends the loop, and with it the coroutine.
task stops_its_context(cohort::communicator world) {
  co_await meets(world);
  world.get_executor().context().stop();
  co_await rest(1h);
}

/// With a message under way that nobody takes.
task throws_over_a_future(cohort::communicator world) {
  co_await meets(world);
  const int number = 1;
  if (world.rank() == world.size() - 1) {
    const auto sent =
        cohort::send<cohort::send_mode::synchronous>(world, number, 0, 9, cohort::as_future);
    throw std::runtime_error("it cannot be told in time");
  }
  co_await meets(world);
}

/// No coroutine: the exception comes when it is called.
task throws_at_once(cohort::communicator world) {
  if (world.rank() == world.size() - 1) throw std::runtime_error("no coroutine was made");
  return waits_for_a_message(world);
}

task posts_what_throws(cohort::communicator world) {
  if (world.rank() == world.size() - 1) {
    asio::post(world.get_executor(), [] { throw std::runtime_error("a handler has no file"); });
  }
  co_await waits_for_a_message(world);
}

task throws_for_rethrow(cohort::communicator world) {
  co_await rest(1ms);
  if (world.rank() == world.size() - 1) throw std::runtime_error("told by cohort::rethrow");
}

task spawns_with_rethrow(cohort::communicator world) {
  asio::co_spawn(world.get_executor(), throws_for_rethrow(world), cohort::rethrow);
  co_await rest(60s);
}

/// A message to itself that comes after the main coroutine has ended.
task sends_later(cohort::communicator world) {
  co_await rest(50ms);
  const int number = 5;
  co_await cohort::send(world, number, world.rank(), 3);
}

task works_on(cohort::communicator world) {
  int number = 0;
  co_await cohort::recv(world, number, world.rank(), 3);
  if (number == 5) std::puts("the detached work is complete");
}

asio::awaitable<int> returns_before_its_work(cohort::communicator world) {
  asio::co_spawn(world.get_executor(), works_on(world), cohort::rethrow);
  asio::co_spawn(world.get_executor(), sends_later(world), cohort::rethrow);
  co_return 7;
}

asio::awaitable<int> takes_arguments(cohort::communicator world, int argc, char** argv) {
  co_await meets(world);
  const bool ended = argv[argc] == nullptr;
  co_return argc == 3 && std::string_view(argv[2]) == "last" && ended ? 0 : 2;
}

asio::awaitable<int> has_options(cohort::communicator world) {
  co_await meets(world);
  const bool engine = cohort::use_engine(world.get_executor().context()).options().nap == 77us;
  const bool checks = world.options().checks == cohort::checks::bounds;
  int level = MPI_THREAD_MULTIPLE;
  MPI_Query_thread(&level);
  co_return engine&& checks&& level < MPI_THREAD_SERIALIZED ? 0 : 2;
}

cohort::run_options with_options() {
  cohort::run_options options;
  options.thread_level = cohort::thread_level::funneled;
  options.engine.nap = 77us;
  options.communicator.checks = cohort::checks::bounds;
  return options;
}

/// A host that has MPI for itself, before and after.
template <class... Mains>
int in_host(int argc, char** argv, Mains... mains) {
  MPI_Init(&argc, &argv);
  int status = 0;
  ((status += cohort::run(argc, argv, mains)), ...);
  int finalized = 1;
  MPI_Finalized(&finalized);
  if (finalized != 0) return 2;
  MPI_Finalize();
  std::puts("MPI was the host's to the end");
  return status;
}

/// MPI cannot be started twice.
int after_mpi(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Finalize();
  return cohort::run(argc, argv, meets);
}

}  // namespace

int run_ending(const std::string& ending, int argc, char** argv) {
  if (const char* const file = std::getenv("COHORT_TEST_STDERR")) {
    ::dup2(::open(file, O_WRONLY | O_APPEND), STDERR_FILENO);
  }
  const auto fails = one_throws(std::runtime_error("cannot open its file"));
  const std::map<std::string, std::function<int()>> endings = {
      {"run_throws", [&] { return cohort::run(argc, argv, fails); }},
      {"run_throws_number", [&] { return cohort::run(argc, argv, one_throws(3)); }},
      {"run_all_throw", [&] { return cohort::run(argc, argv, all_throw); }},
      {"run_throws_last", [&] { return cohort::run(argc, argv, throws_after_the_others); }},
      {"run_stops", [&] { return cohort::run(argc, argv, stops_its_context); }},
      {"run_throws_over_future", [&] { return cohort::run(argc, argv, throws_over_a_future); }},
      {"run_throws_at_once", [&] { return cohort::run(argc, argv, throws_at_once); }},
      {"run_handler_throws", [&] { return cohort::run(argc, argv, posts_what_throws); }},
      {"run_rethrows", [&] { return cohort::run(argc, argv, spawns_with_rethrow); }},
      {"run_returns", [&] { return cohort::run(argc, argv, returns_before_its_work); }},
      {"run_arguments", [&] { return cohort::run(argc, argv, takes_arguments); }},
      {"run_options", [&] { return cohort::run(argc, argv, has_options, with_options()); }},
      {"run_in_host", [&] { return in_host(argc, argv, meets, takes_arguments); }},
      {"run_throws_in_host", [&] { return in_host(argc, argv, meets, fails); }},
      {"run_after_mpi", [&] { return after_mpi(argc, argv); }},
  };
  return endings.at(ending)();
}
