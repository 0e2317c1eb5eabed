// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::cluster::child_process`: a started process as something that can be awaited.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/launch/child_session.hpp>
#include <cohort/cluster/launch/launch_command.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace cohort::cluster {

/// A process in a group of its own, which ends with this object, or with the thread that made it.
///
/// Its stdin is /dev/null; its outputs are read here, and no other descriptor reaches it. When it
/// ends, what is left of its group gets SIGKILL; if we end it, so does all else that it had started
/// on this machine. All functions belong to the loop, which one thread runs. The thread that makes
/// it must live as long: the kernel sends the child SIGTERM when that thread ends, so that no job
/// outlives a manager that was killed.
///
/// The destructor of a running one sends SIGTERM and returns; SIGKILL, if it is needed, and the
/// reaping follow on the loop. If the loop is destroyed first the group gets SIGKILL there and
/// then.
template <class Any>
class basic_child_process {
 public:
  using duration = std::chrono::nanoseconds;

  /// Starts it; when this returns the program runs. Throws errc::launch_failed with the path and
  /// the reason if it does not.
  basic_child_process(const asio::any_io_executor& executor, const launch_command& command,
                      child_options options = {})
      : record_(std::make_shared<record>()) {
    const auto here = std::make_shared<session>(executor, std::move(options));
    if (!command.argv.empty()) record_->name = command.argv.front();
    here->start(command, record_);
    session_ = here;
  }
  ~basic_child_process() { leave(); }
  basic_child_process(basic_child_process&&) noexcept = default;
  basic_child_process& operator=(basic_child_process&& other) noexcept {
    leave();
    session_ = std::move(other.session_);
    record_ = std::move(other.record_);
    return *this;
  }

  /// Of the process and of its group.
  [[nodiscard]] int pid() const noexcept { return record_->pid; }
  /// Nothing while it runs, or while its output is still read.
  [[nodiscard]] std::optional<exit_status> status() const noexcept { return record_->status; }
  /// The last of what it printed, both outputs as they came.
  [[nodiscard]] std::string output() const {
    const std::string& kept = record_->output;
    return kept.substr(kept.size() - std::min(kept.size(), record_->kept_output));
  }

  /// "mpiexec exited with status 1; the last that it printed:" and that, for the texts of errors.
  [[nodiscard]] std::string report() const {
    const std::string printed = output();
    return record_->name + " " + (record_->status ? record_->status->text() : "is running") +
           (printed.empty() ? " and printed nothing" : "; the last that it printed:\n") + printed;
  }

  /// Until it has ended and its output is read.
  [[nodiscard]] asio::awaitable<exit_status> wait() { return ended(session_.lock(), record_); }
  /// Sends SIGTERM to the group, when it is called, and after `grace` SIGKILL to all that is left;
  /// until it has ended. For a process that has ended before it only says how. A grace beyond what
  /// a clock can tell is one without end.
  [[nodiscard]] asio::awaitable<exit_status> terminate(duration grace) {
    const auto here = session_.lock();
    if (here) here->terminate(grace);
    return ended(here, record_);
  }
  /// SIGKILL for the group, unless the process has ended by then.
  void kill_after(duration bound) {
    if (const auto here = session_.lock()) here->kill_after(bound);
  }
  /// Says whether there was a process to send it to.
  bool signal_group(int signal) noexcept {
    const auto here = session_.lock();
    return here && here->signal_group(signal);
  }

 private:
  using session = detail::child_session;
  using record = detail::child_record;

  static asio::awaitable<exit_status> ended(std::shared_ptr<session> here,
                                            std::shared_ptr<record> facts) {
    while (!facts->status) {
      if (!here) throw error(errc::engine_stopped, "child_process");
      std::error_code woken;
      co_await here->changed().async_wait(asio::redirect_error(awaiting<Any>, woken));
    }
    co_return *facts->status;
  }
  void leave() noexcept {
    const auto here = session_.lock();
    if (!here) return;
    try {
      here->leave();
    } catch (...) {
      here->signal_group(SIGKILL);  // no memory for a timer: no grace
    }
  }

  // Owned by the coroutines of the session, so that nothing of the loop is left when that is gone.
  std::weak_ptr<session> session_;
  std::shared_ptr<record> record_;
};
using child_process = basic_child_process<void>;

}  // namespace cohort::cluster
