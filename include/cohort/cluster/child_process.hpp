// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::cluster::child_process`: a started process as something that can be awaited.

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cohort/cluster/detail/process_tree.hpp>
#include <cohort/cluster/detail/spawn.hpp>
#include <cohort/cluster/launch_command.hpp>
#include <cohort/cluster/line_assembler.hpp>
#include <cohort/cluster/output_line.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/log.hpp>

#include <asio/buffer.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
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
  [[nodiscard]] std::string text() const;
};

/// How a child_process is looked after.
struct child_options {
  child_options() {}  // for g++ 12, see launch_options
  using duration = std::chrono::nanoseconds;

  /// Gets each line of both outputs, with `launcher_rank`, on the loop: it must not block. Not
  /// called any more once the child_process is destroyed, though that may still be read.
  output_sink on_line;
  std::size_t longest_line = default_longest_line;
  std::size_t kept_output = 64 * 1024;  ///< of the last output, for the texts of errors
  /// How long the outputs are still read once the process has ended, if others hold them open.
  duration drain = std::chrono::milliseconds(500);
  duration grace = std::chrono::seconds(3);  ///< of the destructor: between SIGTERM and SIGKILL
  bool use_pidfd = true;                     ///< false: as on Linux before 5.3, by SIGCHLD
};

/// A process in a group of its own, which ends with this object, or with the thread that made it.
///
/// Its stdin is /dev/null; its outputs are read here, and no other descriptor reaches it. When it
/// ends, what is left of its group gets SIGKILL; if we end it, so does all else that it had started
/// on this machine. All functions belong to the loop, which one thread
/// runs. The thread that makes it must live as long: the kernel sends the child SIGTERM when that
/// thread ends, so that no job outlives a manager that was killed.
///
/// The destructor of a running one sends SIGTERM and returns; SIGKILL, if it is needed, and the
/// reaping follow on the loop. If the loop is destroyed first the group gets SIGKILL there and
/// then.
class child_process {
 public:
  using duration = std::chrono::nanoseconds;

  /// Starts it; when this returns the program runs. Throws errc::launch_failed with the path and
  /// the reason if it does not.
  child_process(const asio::any_io_executor& executor, const launch_command& command,
                child_options options = {});
  ~child_process() { leave(); }
  child_process(child_process&&) noexcept = default;
  child_process& operator=(child_process&& other) noexcept {
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
  [[nodiscard]] std::string output() const;

  /// "mpiexec exited with status 1; the last that it printed:" and that, for the texts of errors.
  [[nodiscard]] std::string report() const;

  /// Until it has ended and its output is read.
  [[nodiscard]] asio::awaitable<exit_status> wait() { return ended(session_.lock(), record_); }
  /// Sends SIGTERM to the group, when it is called, and after `grace` SIGKILL to all that is left;
  /// until it has ended. For a process that has ended before it only says how.
  [[nodiscard]] asio::awaitable<exit_status> terminate(duration grace);
  /// SIGKILL for the group, unless the process has ended by then.
  void kill_after(duration bound);
  /// Says whether there was a process to send it to.
  bool signal_group(int signal) noexcept;

 private:
  /// What outlives the loop.
  struct record {
    int pid = -1;
    std::string name;
    std::optional<exit_status> status;
    std::string output;
    std::size_t kept_output = 0;
  };
  class session;

  static asio::awaitable<exit_status> ended(std::shared_ptr<session> here,
                                            std::shared_ptr<record> facts);
  void leave() noexcept;

  // Owned by the coroutines of the session, so that nothing of the loop is left when that is gone.
  std::weak_ptr<session> session_;
  std::shared_ptr<record> record_;
};

// ---- implementation --------------------------------------------------------------------------

inline std::string exit_status::text() const {
  if (!known) return "has ended; another part of this program has taken its status";
  if (signal == 0) return "exited with status " + std::to_string(code);
  std::string result("was ended by signal ");
  result += std::to_string(signal);
  if (const char* name = ::strsignal(signal)) {
    result += " (";
    result += name;
    result += ")";
  }
  return result;
}

/// What the loop does for a process: three coroutines, which read its outputs and await its end.
///
/// The end goes in these steps. 1. The process has ended and stays a zombie, so its number, which
/// is that of the group too, belongs to nobody else. 2. The outputs are read to their ends, for at
/// most `drain`; after a SIGTERM of ours, until `drain` after the SIGKILL. 3. The group gets
/// SIGKILL. 4. The zombie is reaped. Only now do waiters see the status.
class child_process::session : public std::enable_shared_from_this<session> {
 public:
  session(const asio::any_io_executor& executor, child_options options)
      : options_(std::move(options)),
        out_(executor),
        err_(executor),
        pidfd_(executor),
        children_(executor),
        changed_(executor, clock::time_point::max()),
        drain_timer_(executor),
        kill_timer_(executor) {}
  ~session() {
    if (!running_) return;
    kill_everything();
    ::waitpid(facts_->pid, nullptr, WNOHANG);
  }
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  void start(const launch_command& command, std::shared_ptr<record> facts) {
    const bool by_signal = !options_.use_pidfd || !pidfd_works();
    if (by_signal) children_.add(SIGCHLD);  // before the fork, so that none is missed
    facts_ = std::move(facts);
    facts_->kept_output = options_.kept_output;
    detail::spawned child = detail::spawn(command);
    facts_->pid = child.pid;
    running_ = true;
    assign(out_, std::move(child.out));
    assign(err_, std::move(child.err));
    if (!by_signal) {
      detail::unique_fd fd = open_pidfd(child.pid);
      // "No such process": it has ended, and SIGCHLD is ignored; has_ended() finds out.
      if (fd.get() >= 0 || errno != ESRCH) assign(pidfd_, std::move(fd));
    }
    const auto self = shared_from_this();
    const auto executor = out_.get_executor();
    asio::co_spawn(executor, read(self, out_, output_stream::out), asio::detached);
    asio::co_spawn(executor, read(self, err_, output_stream::err), asio::detached);
    asio::co_spawn(executor, watch(self), asio::detached);
  }

  bool signal_group(int signal) noexcept { return running_ && ::kill(-facts_->pid, signal) == 0; }

  void terminate(duration grace) {
    if (!running_) return;
    started_by_it_ = detail::descendants(facts_->pid);  // before it leaves them to init
    signal_group(SIGTERM);
    kill_after(grace);
  }

  void kill_after(duration grace) {
    if (!running_) return;
    const auto end = clock::now() + std::chrono::duration_cast<clock::duration>(grace);
    if (kill_at_ && *kill_at_ <= end) return;  // asked for before, and sooner
    kill_at_ = end;
    kill_timer_.expires_at(end);
    kill_timer_.async_wait([self = shared_from_this()](std::error_code failed) {
      if (failed || !self->running_) return;
      self->kill_everything();
      self->killed_ = true;
      self->drain_until_ = clock::now() + self->drain();
      self->drain_timer_.cancel();
    });
  }

  void leave() {
    told_ = false;
    terminate(options_.grace);
  }

  /// Until something has changed.
  [[nodiscard]] asio::steady_timer& changed() noexcept { return changed_; }

 private:
  using clock = std::chrono::steady_clock;

  static detail::unique_fd open_pidfd(pid_t pid) {
#ifdef SYS_pidfd_open
    return detail::unique_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#else
    return (void)pid, detail::unique_fd();
#endif
  }
  static bool pidfd_works() { return open_pidfd(::getpid()).get() >= 0; }

  static void assign(asio::posix::stream_descriptor& to, detail::unique_fd fd) {
    if (fd.get() < 0) detail::launch_error("pidfd_open", errno);
    to.assign(fd.get());  // throws before it owns the descriptor, not after
    static_cast<void>(fd.release());
  }

  [[nodiscard]] clock::duration drain() const {
    return std::chrono::duration_cast<clock::duration>(options_.drain);
  }

  /// The group, and of what else it has started those that can be found: Open MPI gives every rank
  /// a group of its own, and a launcher that is killed leaves its ranks running.
  void kill_everything() noexcept {
    signal_group(SIGSTOP);  // so that it starts no more while we look
    try {
      detail::kill_all(detail::descendants(facts_->pid));
      detail::kill_all(started_by_it_);
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

  static asio::awaitable<void> watch(std::shared_ptr<session> self) {
    std::error_code ignored;
    while (!self->has_ended()) {
      if (self->pidfd_.is_open()) {
        co_await self->pidfd_.async_wait(asio::posix::descriptor_base::wait_read,
                                         asio::redirect_error(asio::use_awaitable, ignored));
      } else {
        co_await self->children_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      }
    }
    self->drain_until_ = clock::now() + self->drain();
    while (self->readers_ > 0) {
      const bool may_be_killed = self->kill_at_ && !self->killed_ && self->running_;
      const auto until = may_be_killed ? clock::time_point::max() : self->drain_until_;
      if (until <= clock::now()) break;
      self->drain_timer_.expires_at(until);
      co_await self->drain_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
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

  static asio::awaitable<void> read(std::shared_ptr<session> self,
                                    asio::posix::stream_descriptor& from, output_stream which) {
    line_assembler lines(self->options_.longest_line);
    const auto deliver = [&](std::string_view text, bool complete) {
      self->deliver({launcher_rank, which, text, complete});
    };
    std::vector<char> buffer(8192);
    for (;;) {
      std::error_code failed;
      const std::size_t size = co_await from.async_read_some(
          asio::buffer(buffer), asio::redirect_error(asio::use_awaitable, failed));
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
    if (!told_ || !options_.on_line) return;
    try {
      options_.on_line(line);
    } catch (const std::exception& failed) {
      told_ = false;
      std::string text("a handler of the launcher's output threw and gets no more: ");
      text += failed.what();
      log::write(log::level::error, text);
    }
  }

  child_options options_;
  std::shared_ptr<record> facts_;
  exit_status status_;
  std::vector<detail::process_entry> started_by_it_;  ///< when it was terminated
  bool running_ = false;                              ///< until it is reaped
  bool killed_ = false;
  bool told_ = true;  ///< lines are given to the handler
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

inline child_process::child_process(const asio::any_io_executor& executor,
                                    const launch_command& command, child_options options)
    : record_(std::make_shared<record>()) {
  const auto here = std::make_shared<session>(executor, std::move(options));
  if (!command.argv.empty()) record_->name = command.argv.front();
  here->start(command, record_);
  session_ = here;
}

inline std::string child_process::output() const {
  const std::string& kept = record_->output;
  return kept.substr(kept.size() - std::min(kept.size(), record_->kept_output));
}

inline std::string child_process::report() const {
  std::string text(record_->name);
  text += ' ';
  text += record_->status ? record_->status->text() : "is running";
  const std::string printed = output();
  text += printed.empty() ? " and printed nothing" : "; the last that it printed:\n";
  return text += printed;
}

inline void child_process::kill_after(duration bound) {
  if (const auto here = session_.lock()) here->kill_after(bound);
}

inline asio::awaitable<exit_status> child_process::terminate(duration grace) {
  const auto here = session_.lock();
  if (here) here->terminate(grace);
  return ended(here, record_);
}

inline bool child_process::signal_group(int signal) noexcept {
  const auto here = session_.lock();
  return here && here->signal_group(signal);
}

inline asio::awaitable<exit_status> child_process::ended(std::shared_ptr<session> here,
                                                         std::shared_ptr<record> facts) {
  while (!facts->status) {
    if (!here) throw error(errc::engine_stopped, "child_process");
    std::error_code woken;
    co_await here->changed().async_wait(asio::redirect_error(asio::use_awaitable, woken));
  }
  co_return *facts->status;
}

inline void child_process::leave() noexcept {
  const auto here = session_.lock();
  if (!here) return;
  try {
    here->leave();
  } catch (...) {
    here->signal_group(SIGKILL);  // no memory for a timer: no grace
  }
}

}  // namespace cohort::cluster
