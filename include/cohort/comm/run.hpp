// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// `cohort::run`: the whole `main` of a program whose work is one coroutine on each rank.
///
/// \code
/// #include <cohort/cohort.hpp>
///
/// #include <cstdio>
///
/// asio::awaitable<void> add_up(cohort::communicator world) {
///   int sum = world.rank();
///   co_await cohort::all_reduce(world, sum, cohort::op::sum);
///   if (world.rank() == 0) std::printf("%d\n", sum);
/// }
///
/// int main(int argc, char** argv) { return cohort::run(argc, argv, add_up); }
/// \endcode

#include <cohort/comm/communicator_state.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>
#include <cohort/mpi/environment.hpp>

#include <concepts>
#include <cstdlib>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace cohort {

/// What `run` makes, and how. The same on all ranks.
struct run_options {
  cohort::thread_level thread_level = cohort::thread_level::serialized;
  engine_options engine = engine_options::from_environment();
  communicator_options communicator;
};

namespace comm {

/// What a main coroutine may return.
template <class Awaitable>
concept main_result =
    std::same_as<Awaitable, asio::awaitable<void>> || std::same_as<Awaitable, asio::awaitable<int>>;

template <class Main>
concept takes_world = requires(Main& main, communicator world) {
  { main(world) } -> main_result;
};
template <class Main>
concept takes_world_and_arguments =
    requires(Main& main, communicator world, int argc, char** argv) {
      { main(world, argc, argv) } -> main_result;
    };
template <class Main>
concept main_coroutine = takes_world<Main> || takes_world_and_arguments<Main>;

/// Called when a main coroutine has ended: keeps its status, or ends the program.
struct main_ended {
  asio::io_context* io;
  std::optional<int>* status;

  void operator()(const std::exception_ptr& why, int result = EXIT_SUCCESS) const {
    *status = why ? process::give_up(why) : result;
    if (why) io->stop();
  }
};

/// What a program returns whose loop has ended.
[[nodiscard]] inline int status_of(const std::optional<int>& status) {
  if (status) return *status;
  log::write(log::level::error, "the context was stopped before the main coroutine had ended");
  return EXIT_FAILURE;
}

}  // namespace comm

/// Runs `main(world)`, or `main(world, argc, argv)`, on every rank.
///
/// Makes an environment, a context and `world`, a duplicate of `MPI_COMM_WORLD`; runs the context
/// until the coroutine has ended and nothing else is in flight or waited for; finalizes MPI unless
/// the host program has started it. Returns the coroutine's int, or 0 if it has none. The
/// coroutine sees the arguments as MPI has left them. `main` is called once, and kept until the
/// end.
///
/// *Errors.* Whatever leaves the coroutine, another handler or the making of these objects ends the
/// job, on all ranks, with status 1 and one line that tells rank, message and what was in flight.
/// No destructor runs but those of the coroutines that the exception has left. A future that they
/// drop in flight has 2 s to end; if it does not, the line names that instead of the message. Where
/// MPI does not run, 1 is returned; so it is, after a line that says so, where somebody has stopped
/// the context before the coroutine has ended.
///
/// A program that is to own the loop, to run a second context or to go on after an error has the
/// long form: \ref environment, an `asio::io_context`, \ref communicator, `asio::co_spawn` with
/// `rethrow`.
template <class Main, class Opener = decltype(backend_opener_for(comm::asked_for<Main>(), 0))>
[[nodiscard]] int run(int argc, char** argv, Main&& main, const run_options& options = {});

}  // namespace cohort

namespace cohort::comm {

/// A main coroutine of any type, so that what runs it is compiled once.
class program {
 public:
  virtual void start(communicator world, int argc, char** argv, main_ended end) = 0;

 protected:
  ~program() = default;
};

template <class Main>
class program_of final : public program {
 public:
  explicit program_of(Main& main) noexcept : main_(main) {}
  void start(communicator world, int argc, char** argv, main_ended end) override {
    const auto executor = world.get_executor();
    if constexpr (takes_world_and_arguments<Main>) {
      asio::co_spawn(executor, main_(std::move(world), argc, argv), end);
    } else {
      asio::co_spawn(executor, main_(std::move(world)), end);
    }
  }

 private:
  Main& main_;
};

// An exception that leaves the loop is caught while the context lives: what is in flight can still
// be named then, and nothing waits for it.
template <std::same_as<program> Program>
int run_program(int argc, char** argv, Program& main, const run_options& options,
                const backend_opening* opening) {
  std::optional<int> status;
  try {
    const environment mpi(argc, argv, options.thread_level);
    asio::io_context io;
    try {
      use_engine(io, options.engine);
      const communicator world(io, MPI_COMM_WORLD, options.communicator, opening);
      main.start(world, argc, argv, main_ended{&io, &status});
      io.run();
      status = status_of(status);
    } catch (...) {
      status = process::give_up(std::current_exception());
    }
  } catch (...) {
    status = process::give_up(std::current_exception());
  }
  return *status;
}

}  // namespace cohort::comm

namespace cohort {

template <class Main, class Opener>
int run(int argc, char** argv, Main&& main, const run_options& options) {
  using main_type = std::remove_reference_t<Main>;
  static_assert(comm::main_coroutine<main_type>,
                "cohort::run: the main coroutine takes (cohort::communicator) or "
                "(cohort::communicator, int, char**), and returns asio::awaitable<void> or "
                "asio::awaitable<int>");
  if constexpr (comm::main_coroutine<main_type>) {
    comm::program_of<main_type> program(main);
    return comm::run_program<comm::program>(argc, argv, program, options, Opener::opening());
  } else {
    return EXIT_FAILURE;
  }
}

}  // namespace cohort
