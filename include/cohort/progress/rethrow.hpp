// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::rethrow`: the completion token for the main coroutine of a rank.

#include <cohort/core/asio.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/backoff.hpp>

#include <exception>
#include <string>
#include <system_error>

namespace cohort {

/// A handler for `co_spawn` that lets an exception out of `io.run()`.
///
/// Before it throws it prints rank, message and what is in flight, because an uncaught exception
/// runs no destructor; marks the process failed, so that `~environment` ends the job rather than
/// wait in `MPI_Finalize` for ranks that wait for this one (`environment::recovered()` clears the
/// mark); and gives MPI at most 2 s to finish what is in flight, because buffers in `main` die
/// next.
struct rethrow_t {
  constexpr rethrow_t() noexcept {}

  template <class... Results>
  void operator()(std::exception_ptr error, Results&&...) const {
    if (error && !is_echo(error)) fail(std::move(error));
  }

 private:
  /// Whether this is a receive that the report of an earlier failure has given up. The loop may
  /// deliver it, because Asio keeps exceptions of dispatched handlers until the end of a turn.
  static bool is_echo(const std::exception_ptr& error);
  [[noreturn]] static void fail(std::exception_ptr error);
};

/// *Example*: `asio::co_spawn(io, train(world), cohort::rethrow);`
inline constexpr rethrow_t rethrow{};

inline bool rethrow_t::is_echo(const std::exception_ptr& error) {
  if (!process::failed.load()) return false;
  try {
    std::rethrow_exception(error);
  } catch (const std::system_error& known) {
    return known.code() == asio::error::operation_aborted;
  } catch (...) {
    return false;
  }
}

inline void rethrow_t::fail(std::exception_ptr error) {
  process::failed.store(true);
  std::string text = process::line_prefix() + process::message_of(error) + '\n';
  const std::string in_flight = process::describe_in_flight();
  if (!in_flight.empty()) text += "in flight when it was thrown:\n" + in_flight;
  process::write_last_words(text);
  process::drain_all(process::failure_time_left(progress::engine_options().drain_after_failure));
  std::rethrow_exception(std::move(error));
}

}  // namespace cohort
