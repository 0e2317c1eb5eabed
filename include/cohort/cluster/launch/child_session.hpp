// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the loop does for a started process: reads its outputs, awaits its end, ends it; with
/// which options, and how it has ended.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/launch/launch_command.hpp>
#include <cohort/cluster/launch/spawn.hpp>
#include <cohort/cluster/output/capture.hpp>
#include <cohort/cluster/sinks.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/log.hpp>

#include <asio/buffer.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// How a process has ended.
struct exit_status {
  bool known = true;  ///< false: another part of this program has taken the status
  int code = 0;       ///< what it returned, unless a signal ended it
  int signal = 0;     ///< the signal that ended it, or 0

  [[nodiscard]] bool success() const noexcept { return known && code == 0 && signal == 0; }
  /// "exited with status 1", "was ended by signal 9 (Killed)".
  [[nodiscard]] std::string text() const {
    if (!known) return "has ended; another part of this program has taken its status";
    if (signal == 0) return "exited with status " + std::to_string(code);
    const char* const name = ::strsignal(signal);
    return "was ended by signal " + std::to_string(signal) +
           (name != nullptr ? " (" + std::string(name) + ")" : "");
  }
};

/// How a child_process is looked after.
struct child_options {
  child_options() {}  // for g++ 12, see launch_options
  using duration = std::chrono::nanoseconds;

  /// Gets each line of both outputs, with `launcher_rank`, on the loop: it must not block. It is
  /// not called any more once the child_process is destroyed, even if the outputs are still read
  /// then.
  output_sink on_line;
  std::size_t longest_line = default_longest_line;
  std::size_t kept_output = 64 * 1024;  ///< of the last output, for the texts of errors
  /// How long the outputs are still read once the process has ended, if others hold them open.
  duration drain = std::chrono::milliseconds(500);
  duration grace = std::chrono::seconds(3);  ///< of the destructor: between SIGTERM and SIGKILL
  bool use_pidfd = true;                     ///< false: as on Linux before 5.3, by SIGCHLD
};

namespace detail {

/// What outlives the loop.
struct child_record {
  int pid = -1;
  std::string name;
  std::optional<exit_status> status;
  std::string output;
  std::size_t kept_output = 0;
};

/// What the loop does for a process: three coroutines, which read its outputs and await its end.
///
/// The end goes in these steps. 1. The process has ended and stays a zombie, so its number, which
/// is that of the group too, belongs to nobody else. 2. The outputs are read to their ends, for at
/// most `drain`; after a SIGTERM of ours, until `drain` after the SIGKILL. 3. The group gets
/// SIGKILL. 4. The zombie is reaped. Only now do waiters see the status.
template <class Any>
class basic_child_session : public std::enable_shared_from_this<basic_child_session<Any>> {
 public:
  using child_session = basic_child_session;
  using duration = std::chrono::nanoseconds;

  basic_child_session(const asio::any_io_executor& executor, child_options options)
      : options_(std::move(options)),
        out_(executor),
        err_(executor),
        pidfd_(executor),
        children_(executor),
        changed_(executor, clock::time_point::max()),
        drain_timer_(executor),
        kill_timer_(executor) {}
  ~basic_child_session() {
    if (!running_) return;
    kill_everything();
    ::waitpid(facts_->pid, nullptr, WNOHANG);
  }
  basic_child_session(const child_session&) = delete;
  basic_child_session& operator=(const child_session&) = delete;

  void start(const launch_command& command, std::shared_ptr<child_record> facts) {
    const bool by_signal = !options_.use_pidfd || !pidfd_works();
    if (by_signal) children_.add(SIGCHLD);  // before the fork, so that none is missed
    facts_ = std::move(facts);
    facts_->kept_output = options_.kept_output;
    spawned child = spawn(command);
    facts_->pid = child.pid;
    running_ = true;
    assign(out_, std::move(child.out));
    assign(err_, std::move(child.err));
    if (!by_signal) {
      unique_fd fd = open_pidfd(child.pid);
      // "No such process": it has ended, and SIGCHLD is ignored; has_ended() finds out.
      if (fd.get() >= 0 || errno != ESRCH) assign(pidfd_, std::move(fd));
    }
    const auto self = this->shared_from_this();
    const auto executor = out_.get_executor();
    asio::co_spawn(executor, read(self, out_, output_stream::out), asio::detached);
    asio::co_spawn(executor, read(self, err_, output_stream::err), asio::detached);
    asio::co_spawn(executor, watch(self), asio::detached);
  }

  bool signal_group(int signal) noexcept { return running_ && ::kill(-facts_->pid, signal) == 0; }

  void terminate(duration grace) {
    if (!running_) return;
    started_by_it_ = descendants(facts_->pid);  // before it leaves them to init
    signal_group(SIGTERM);
    kill_after(grace);
  }

  void kill_after(duration grace) {
    if (!running_) return;
    const auto end = from_now(grace);
    if (kill_at_ && *kill_at_ <= end) return;  // asked for before, and sooner
    kill_at_ = end;
    kill_timer_.expires_at(end);
    kill_timer_.async_wait([self = this->shared_from_this()](std::error_code failed) {
      if (failed || !self->running_) return;
      self->kill_everything();
      self->killed_ = true;
      self->drain_until_ = from_now(self->options_.drain);
      self->drain_timer_.cancel();
    });
  }

  void leave() {
    gives_lines_ = false;
    terminate(options_.grace);
  }

  /// Until something has changed.
  [[nodiscard]] asio::steady_timer& changed() noexcept { return changed_; }

 private:
  using clock = std::chrono::steady_clock;

  static unique_fd open_pidfd(pid_t pid) {
#ifdef SYS_pidfd_open
    return unique_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#else
    return (void)pid, unique_fd();
#endif
  }
  static bool pidfd_works() { return open_pidfd(::getpid()).get() >= 0; }

  static void assign(asio::posix::stream_descriptor& to, unique_fd fd) {
    if (fd.get() < 0) launch_error("pidfd_open", errno);
    to.assign(fd.get());  // throws before it owns the descriptor, not after
    static_cast<void>(fd.release());
  }

  /// The group, and of what else it has started those that can be found: Open MPI gives every rank
  /// a group of its own, and a launcher that is killed leaves its ranks running.
  void kill_everything() noexcept {
    signal_group(SIGSTOP);  // so that it starts no more while we look
    try {
      kill_all(descendants(facts_->pid));
      kill_all(started_by_it_);
    } catch (...) {  // no memory: the group is what remains
    }
    signal_group(SIGKILL);
  }

  /// Whether the process has ended; asks without reaping.
  bool has_ended() {
    siginfo_t info{};
    const auto pid = static_cast<id_t>(facts_->pid);
    if (::waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
      if (errno == EINTR) return false;
      status_.known = false;  // ECHILD: SIGCHLD is ignored, or somebody waits for all children
      running_ = false;
      return true;
    }
    if (info.si_pid == 0) return false;
    const bool exited = info.si_code == CLD_EXITED;
    (exited ? status_.code : status_.signal) = info.si_status;
    return true;
  }

  static asio::awaitable<void> watch(std::shared_ptr<child_session> self) {
    std::error_code ignored;
    while (!self->has_ended()) {
      if (self->pidfd_.is_open()) {
        co_await self->pidfd_.async_wait(asio::posix::descriptor_base::wait_read,
                                         asio::redirect_error(awaiting<Any>, ignored));
      } else {
        co_await self->children_.async_wait(asio::redirect_error(awaiting<Any>, ignored));
      }
    }
    self->drain_until_ = from_now(self->options_.drain);
    while (self->readers_ > 0) {
      const bool may_be_killed = self->kill_at_ && !self->killed_ && self->running_;
      const auto until = may_be_killed ? clock::time_point::max() : self->drain_until_;
      if (until <= clock::now()) break;
      self->drain_timer_.expires_at(until);
      co_await self->drain_timer_.async_wait(asio::redirect_error(awaiting<Any>, ignored));
    }
    if (self->running_) {
      self->kill_everything();
      self->running_ = false;
      ::waitpid(self->facts_->pid, nullptr, WNOHANG);
    }
    self->out_.close(ignored);
    self->err_.close(ignored);
    self->pidfd_.close(ignored);
    self->children_.clear(ignored);
    self->kill_timer_.cancel();
    self->facts_->status = self->status_;
    self->changed_.cancel();
  }

  static asio::awaitable<void> read(std::shared_ptr<child_session> self,
                                    asio::posix::stream_descriptor& from, output_stream which) {
    line_assembler lines(self->options_.longest_line);
    const auto deliver = [&](std::string_view text, bool complete) {
      self->deliver({launcher_rank, which, text, complete});
    };
    std::vector<char> buffer(8192);
    for (;;) {
      std::error_code failed;
      const std::size_t size = co_await from.async_read_some(
          asio::buffer(buffer), asio::redirect_error(awaiting<Any>, failed));
      if (failed) break;
      self->keep(std::string_view(buffer.data(), size));
      lines.push(std::string_view(buffer.data(), size), deliver);
    }
    lines.finish(deliver);
    --self->readers_;
    self->drain_timer_.cancel();
  }

  void keep(std::string_view bytes) {
    std::string& kept = facts_->output;
    kept += bytes;
    if (kept.size() > 2 * facts_->kept_output) kept.erase(0, kept.size() - facts_->kept_output);
  }

  void deliver(const output_line& line) {
    if (!gives_lines_ || !options_.on_line) return;
    try {
      options_.on_line(line);
    } catch (const std::exception& failed) {
      gives_lines_ = false;
      log::write(log::level::error,
                 std::string("a handler of the launcher's output threw and gets no more: ") +
                     failed.what());
    }
  }

  child_options options_;
  std::shared_ptr<child_record> facts_;
  exit_status status_;
  std::vector<process_entry> started_by_it_;  ///< when it was terminated
  bool running_ = false;                      ///< until it is reaped
  bool killed_ = false;
  bool gives_lines_ = true;  ///< lines are given to the handler
  int readers_ = 2;
  std::optional<clock::time_point> kill_at_;
  clock::time_point drain_until_;
  asio::posix::stream_descriptor out_;
  asio::posix::stream_descriptor err_;
  asio::posix::stream_descriptor pidfd_;
  asio::signal_set children_;  ///< empty where there is a pidfd
  asio::steady_timer changed_;
  asio::steady_timer drain_timer_;
  asio::steady_timer kill_timer_;
};
using child_session = basic_child_session<void>;

}  // namespace detail

}  // namespace cohort::cluster
