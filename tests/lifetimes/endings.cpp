// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The ways a program with operations in flight can end, one per argument. Not a Catch2 program:
// most of them end the job.

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/neighbor.hpp>
#include <cohort/comm/creation_order.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// In run_endings.cpp.
int run_ending(const std::string& ending, int argc, char** argv);

namespace {

using cohort::communicator;
using namespace std::chrono_literals;

/// Starts the all_reduces of three layers and then, on rank 0, fails; the others wait for it.
asio::awaitable<void> training(communicator world) {
  std::vector<std::vector<double>> layers(3, std::vector<double>(50'000, 1.0));
  for (int step = 0; step < 3; ++step) {
    std::vector<cohort::future<>> gradients;
    for (auto& layer : layers) {
      gradients.push_back(cohort::all_reduce(world, layer, cohort::op::average, cohort::as_future));
      if (step == 1 && world.rank() == 0) throw std::runtime_error("rank 0 gives up");
    }
    co_await cohort::when_all(std::move(gradients));
  }
}

/// Something else that the program waits for; the report of the failure names it.
asio::awaitable<void> waiting(communicator world) {
  double number = 0;
  co_await cohort::recv(world, number, (world.rank() + 1) % world.size(), 7);
}

void train() {
  asio::io_context io;
  const communicator world{io};
  asio::co_spawn(io, waiting(world), cohort::rethrow);
  asio::co_spawn(io, training(world), cohort::rethrow);
  io.run();
}

/// The same, with buffers in the caller's frame: they die before the context.
void train_outside() {
  asio::io_context io;
  const communicator world{io};
  std::vector<double> gradient(50'000, 1.0);
  double never = 0;
  auto waiting = cohort::recv(world, never, 0, 77, cohort::as_future);
  auto sum = cohort::all_reduce(world, gradient, cohort::op::sum, cohort::as_future);
  if (world.rank() == 0) throw std::runtime_error("rank 0 gives up");
  io.run();
}

/// Nobody receives the message; MPI keeps it when the context is destroyed.
void leak() {
  static const int number = 1;
  asio::io_context io;
  cohort::engine_options options;
  options.drain = 200ms;
  cohort::use_engine(io, options);
  const communicator world{io};
  cohort::send<cohort::send_mode::synchronous>(world, number, world.rank(), 5, asio::detached);
  io.poll();
}

/// A future over a buffer on the stack is dropped, and its operation never ends.
void drop() {
  asio::io_context io;
  cohort::engine_options options;
  options.drain = 200ms;
  cohort::use_engine(io, options);
  const communicator world{io};
  const int number = 1;
  const auto sent = cohort::send<cohort::send_mode::synchronous>(world, number, world.rank(), 5,
                                                                 cohort::as_future);
  io.poll();
}

/// The age in "..., pending for 97 ms, ...", or -1.
long age_in(const std::string& text) {
  const std::string before = "pending for ";
  const auto found = text.find(before);
  if (found == std::string::npos) return -1;
  char* end = nullptr;
  const long age = std::strtol(text.c_str() + found + before.size(), &end, 10);
  return std::string(end).starts_with(" ms, ") ? age : -1;
}

/// What a timer of 10 ms on the same loop sees of an operation, in milliseconds.
struct watched {
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  long longest_gap = 0;   // in which the loop stood still
  long reported_at = -1;  // not later than this
  bool over = false;
  [[nodiscard]] long now() const {
    using namespace std::chrono;
    return static_cast<long>(ceil<milliseconds>(steady_clock::now() - begun).count());
  }
};
asio::awaitable<void> watch(communicator comm, watched& seen) {
  asio::steady_timer timer(comm.get_executor());
  for (long before = seen.now(); !seen.over;) {
    timer.expires_after(10ms);
    co_await timer.async_wait(asio::use_awaitable);
    const long now = seen.now();
    seen.longest_gap = std::max(seen.longest_gap, now - before);
    before = now;
    const bool reported = comm.last_failure().code == cohort::errc::deadline_exceeded;
    if (reported && seen.reported_at < 0) seen.reported_at = now;
  }
}

/// Rank 1 comes late to a collective under a deadline.
void pass_deadline(cohort::on_deadline what) {
  asio::io_context io;
  cohort::communicator_options options;
  options.on_deadline = what;
  const communicator world{io, options};
  watched seen;
  const auto body = [&seen](communicator comm) -> asio::awaitable<void> {
    double number = 1;
    seen.begun = std::chrono::steady_clock::now();
    asio::co_spawn(comm.get_executor(), watch(comm, seen), cohort::rethrow);
    co_await cohort::with_deadline(cohort::all_reduce(comm, number, cohort::op::sum), 300ms);
    seen.over = true;
    const cohort::failure reported = comm.last_failure();
    if (reported.code != cohort::errc::deadline_exceeded && comm.rank() == 0) {
      throw std::logic_error("the deadline was not reported");
    }
    // The age begins at the first tick after the post; there is one every 50 ms, and two at most
    // are missed where the loop does not stand still.
    const long age = age_in(reported.text);
    const long latest = seen.reported_at < 0 ? seen.now() : seen.reported_at;
    if (comm.rank() == 0 && (age < std::max(0L, 300 - 2 * 50 - seen.longest_gap) || age > latest)) {
      throw std::logic_error("not an age that can be: " + reported.text);
    }
    if (number != comm.size()) throw std::logic_error("wrong sum");
  };
  if (world.rank() == 1) std::this_thread::sleep_for(what == cohort::on_deadline::abort ? 20s : 1s);
  asio::co_spawn(io, body(world), cohort::rethrow);
  io.run();
}

/// The host finalizes MPI although receives are posted; context and handles go later.
int let_the_host_finalize(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  asio::io_context io;
  {
    const cohort::environment adopted;
    const communicator world{io};
    const communicator kept = world;
    const communicator ring =
        world.create(cohort::mpi::cartesian({world.size()}, {true}), cohort::blocking);
    double number = 0;
    int ended = 0;
    cohort::recv(world, number, world.rank(), 1,
                 [&](std::error_code why, cohort::status) { ended += why ? 1 : 100; });
    io.poll();
    MPI_Finalize();
    io.run();
    if (ended != 1) return 1;

    std::error_code late;
    cohort::all_reduce(kept, number, cohort::op::sum, [&](std::error_code why) { late = why; });
    io.restart();
    io.run();
    if (late != cohort::errc::finalized) return 2;
    late = {};
    std::vector<double> neighbours(2);
    try {
      cohort::neighbor_all_gather(ring, number, neighbours, cohort::blocking);
    } catch (const std::system_error& why) {
      late = why.code();
    }
    if (late != cohort::errc::finalized) return 3;
  }
  std::puts("MPI was finalized first");
  return 0;
}

/// The program deals with the exception, on all ranks, and goes on.
void recover(cohort::environment& env) {
  asio::io_context io;
  const communicator world{io};
  const auto body = [](communicator comm) -> asio::awaitable<void> {
    double number = 1;
    co_await cohort::all_reduce(comm, number, cohort::op::sum);
    throw std::runtime_error("every rank gives up");
  };
  for (int again = 0; again < 3; ++again) {
    try {
      asio::co_spawn(io, body(world), cohort::rethrow);
      io.run();
    } catch (const std::runtime_error&) {
      env.recovered();
      io.restart();
    }
  }
}

/// The process of rank 1 never ends what it is making, so rank 0 waits for it in the middle of a
/// creation, and holds its own turn, until its context goes away.
void abandon_creation() {
  auto& turn = cohort::comm::creation_turn::of_process();
  const char other = 0;  // stands for another creation
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Request over = MPI_REQUEST_NULL;
  {
    asio::io_context io;
    cohort::progress::engine_options options;
    options.drain = 200ms;
    cohort::use_engine(io, options);
    const communicator world{io};
    if (rank == 1) static_cast<void>(turn.try_take(&other));
    world.dup([](std::error_code, const communicator&) {});
    if (rank == 0) {
      while (turn.try_take(&other)) {
        turn.give_back(&other);
        io.poll();
      }
    } else {
      MPI_Ibarrier(MPI_COMM_WORLD, &over);
      for (int done = 0; done == 0;) {
        io.poll();
        MPI_Test(&over, &done, MPI_STATUS_IGNORE);
      }
    }
  }
  if (rank != 0) return;
  std::puts(turn.try_take(&other) ? "the turn is free" : "the turn is lost");
  std::fflush(stdout);
  MPI_Ibarrier(MPI_COMM_WORLD, &over);
  MPI_Wait(&over, MPI_STATUS_IGNORE);
}

void run(const std::string& ending, cohort::environment& env) {
  const std::map<std::string, std::function<void()>> endings = {
      {"throws", train},
      {"uncaught", train},
      {"throws_outside", train_outside},
      {"leaks", leak},
      {"drops", drop},
      {"deadline_aborts", [] { pass_deadline(cohort::on_deadline::abort); }},
      {"deadline_reports", [] { pass_deadline(cohort::on_deadline::report); }},
      {"recovers", [&] { recover(env); }},
      {"abandons_creation", abandon_creation},
  };
  endings.at(ending)();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string ending = argc > 1 ? argv[1] : "";
  if (ending.starts_with("run_")) return run_ending(ending, argc, argv);
  if (ending == "host_finalizes") return let_the_host_finalize(argc, argv);
  if (ending == "uncaught") {
    cohort::environment env{argc, argv};
    run(ending, env);
    return 0;
  }
  try {
    cohort::environment env{argc, argv};
    run(ending, env);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "caught in main: %s\n", problem.what());
    return 3;
  }
  return 0;
}
