// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/run.hpp`.

#include <cohort/comm/run.hpp>

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
int run_program(int argc, char** argv, Program& main, const run_options& options) {
  std::optional<int> status;
  try {
    const environment mpi(argc, argv, options.thread_level);
    asio::io_context io;
    try {
      use_engine(io, options.engine);
      const communicator world(io, options.communicator);
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

template <class Main>
int run(int argc, char** argv, Main&& main, const run_options& options) {
  using main_type = std::remove_reference_t<Main>;
  static_assert(comm::main_coroutine<main_type>,
                "cohort::run: the main coroutine takes (cohort::communicator) or "
                "(cohort::communicator, int, char**), and returns asio::awaitable<void> or "
                "asio::awaitable<int>");
  if constexpr (comm::main_coroutine<main_type>) {
    comm::program_of<main_type> program(main);
    return comm::run_program<comm::program>(argc, argv, program, options);
  } else {
    return EXIT_FAILURE;
  }
}

}  // namespace cohort
