// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// `cohort::cluster::run`: the whole `main` of a program that launches itself as workers.
///
/// \code
/// #include <cohort/cluster.hpp>
///
/// #include <cstdio>
///
/// int square(int x) { return x * x; }  // runs in workers
///
/// asio::awaitable<void> manage(asio::io_context& io) {  // runs in the process that you start
///   const auto options = cohort::cluster::launch_options{}.ranks(2);
///   auto workers = co_await cohort::cluster::launch(io, options);
///   std::printf("%d\n", co_await workers.call<&square>(/*rank*/ 1, 7));
///   co_await workers.shutdown();
/// }
///
/// int main(int argc, char** argv) { return cohort::cluster::run(argc, argv, manage); }
/// \endcode

#include <cohort/cluster/serve.hpp>
#include <cohort/comm/run.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/process.hpp>

#include <concepts>
#include <cstdlib>
#include <exception>
#include <type_traits>
#include <utility>

namespace cohort::cluster {

template <class Main>
concept takes_context = requires(Main& main, asio::io_context& io) {
  { main(io) } -> comm::main_result;
};
template <class Main>
concept takes_context_and_arguments =
    requires(Main& main, asio::io_context& io, int argc, char** argv) {
      { main(io, argc, argv) } -> comm::main_result;
    };
template <class Main>
concept manager_coroutine = takes_context<Main> || takes_context_and_arguments<Main>;

/// In a process that `launch` has started: serves, and returns 0. In any other: runs
/// `manage(io)`, or `manage(io, argc, argv)`, without MPI, until it has ended and `io` has nothing
/// else to do; returns its int, or 0 if it has none. A coroutine that takes a communicator in place
/// of the context is run by cohort::run, with these options.
///
/// *Errors.* As cohort::run; where MPI does not run, in the manager and in a worker that finds no
/// manager, the process says why in one line and 1 is returned. The workers of a manager end with
/// it.
template <class Main>
[[nodiscard]] int run(int argc, char** argv, Main&& main, const run_options& options = {});

// ---- implementation --------------------------------------------------------------------------

namespace detail {

template <class Main>
int run_manager(int argc, char** argv, Main& main) {
  std::optional<int> status;
  asio::io_context io;
  const comm::main_ended end{&io, &status};
  try {
    if constexpr (takes_context_and_arguments<Main>) {
      asio::co_spawn(io, main(io, argc, argv), end);
    } else {
      asio::co_spawn(io, main(io), end);
    }
    io.run();
  } catch (...) {
    status = process::give_up(std::current_exception());
  }
  return comm::status_of(status);
}

}  // namespace detail

template <class Main>
int run(int argc, char** argv, Main&& main, const run_options& options) {
  using main_type = std::remove_reference_t<Main>;
  static_assert(manager_coroutine<main_type> || comm::main_coroutine<main_type>,
                "cohort::cluster::run: the main coroutine takes (asio::io_context&), or "
                "(cohort::communicator) to have MPI, may take (int, char**) besides, and returns "
                "asio::awaitable<void> or asio::awaitable<int>");
  try {
    if (serve(argc, argv)) return EXIT_SUCCESS;
  } catch (...) {
    return process::give_up(std::current_exception());
  }
  if constexpr (manager_coroutine<main_type>) {
    return detail::run_manager<main_type>(argc, argv, main);
  } else if constexpr (comm::main_coroutine<main_type>) {
    return cohort::run(argc, argv, main, options);
  } else {
    return EXIT_FAILURE;
  }
}

}  // namespace cohort::cluster
