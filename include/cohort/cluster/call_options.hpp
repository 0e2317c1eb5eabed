// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::cluster::call_options`: how a remote call is made, beside what it calls.

#include <chrono>
#include <cstdint>
#include <optional>

namespace cohort::cluster {

/// What happens to a call_all when some ranks do not end after another one has failed.
enum class stall_action : std::uint8_t {
  /// Their outcome is errc::stalled, what they run is set aside, and the workers go on with a new
  /// communicator.
  report,
  terminate  ///< the same, and the job is ended
};

/// For `workers.with(call_options{}.deadline(2s)).call<&f>(...)`.
class call_options {
 public:
  call_options() noexcept {}

  /// The call ends with a deadline_error after that time, and its callee is cancelled.
  call_options& deadline(std::chrono::nanoseconds time) { return put(deadline_, time); }
  [[nodiscard]] const auto& deadline() const noexcept { return deadline_; }

  /// The function runs on a thread of its own instead of the worker's loop: for those that compute
  /// for long, so that the worker goes on answering. It must not use the loop's objects.
  call_options& on_thread(bool wanted) { return put(on_thread_, wanted); }
  [[nodiscard]] bool on_thread() const noexcept { return on_thread_; }

  /// For map: items of a lost worker are given to another one.
  call_options& idempotent(bool wanted) { return put(idempotent_, wanted); }
  [[nodiscard]] bool idempotent() const noexcept { return idempotent_; }

  /// For map: items that a worker has at a time. At least 1.
  call_options& per_worker(int items) { return put(per_worker_, items); }
  [[nodiscard]] int per_worker() const noexcept { return per_worker_; }

  /// For call_all in an adopted job: the manager, rank 0, runs it as well, after the call has been
  /// sent to the workers, and its outcome is the first. `call_context::world()` has all ranks then.
  call_options& include_manager(bool wanted) { return put(include_manager_, wanted); }
  [[nodiscard]] bool include_manager() const noexcept { return include_manager_; }

  /// For call_all: how long the others may take to end after the first has failed.
  call_options& grace(std::chrono::nanoseconds time) { return put(grace_, time); }
  [[nodiscard]] std::chrono::nanoseconds grace() const noexcept { return grace_; }
  /// For call_all: what happens then.
  call_options& on_stall(stall_action action) { return put(on_stall_, action); }
  [[nodiscard]] stall_action on_stall() const noexcept { return on_stall_; }

 private:
  template <class T, class Value>
  call_options& put(T& field, Value value) {
    field = value;
    return *this;
  }

  std::optional<std::chrono::nanoseconds> deadline_;
  std::chrono::nanoseconds grace_ = std::chrono::seconds(5);
  int per_worker_ = 2;
  bool on_thread_ = false;
  bool idempotent_ = false;
  bool include_manager_ = false;
  stall_action on_stall_ = stall_action::report;
};

}  // namespace cohort::cluster
