// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A poll source whose operations a test completes by hand, with no MPI in sight.

#include <cohort/core/asio.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/handler_operation.hpp>

#include <memory>
#include <system_error>
#include <utility>

namespace cohort::testing {

namespace detail {
class manual_state;
struct start_manual;
}  // namespace detail

/// What cancelling does to an operation of a \ref manual_source, and what dropping its future does.
enum class manual_kind : std::uint8_t {
  receive,  ///< like a posted receive: cancelling, or dropping, ends it with `operation_aborted`
  borrowed  ///< like a collective over a borrowed buffer: it ignores cancellation; dropping waits
};

/// Operations with names, which are int, that end when `complete` says so.
///
/// For tests of code that awaits: the engine, futures, deadlines and handlers are the real ones, so
/// an outcome is found by a look and delivered by the loop. Make it before operations are in
/// flight; it may be destroyed before or after its context, not inside a handler. Operations that
/// are pending when it goes are destroyed without calling their handlers. *Threads*: all functions
/// from any thread.
class manual_source {
 public:
  explicit manual_source(asio::io_context& io);
  ~manual_source();
  manual_source(const manual_source&) = delete;
  manual_source& operator=(const manual_source&) = delete;

  /// Starts operation `id`. Several may have one name; `complete` then takes the oldest.
  /// *Completion*: `void(std::error_code)`.
  template <completion_token_for<void(std::error_code)> Token = default_token>
  auto start(int id, Token&& token = Token());
  template <completion_token_for<void(std::error_code)> Token = default_token>
  auto start(int id, manual_kind kind, Token&& token = Token());

  /// Lets the next look find that `id` has ended with `error`. False if nothing of that name is
  /// pending.
  bool complete(int id, std::error_code error = {});

  /// Operations started and not yet found to have ended.
  [[nodiscard]] std::size_t pending() const;
  /// How often the engine has looked.
  [[nodiscard]] std::uint64_t looks() const;

 private:
  std::shared_ptr<detail::manual_state> state_;
};

}  // namespace cohort::testing

#include <cohort/testing/detail/manual_source.ipp>
