// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a process must know to reach its manager, and what connects them then: messages,
/// signs of life, and its outputs.
///
/// Beside its loop a worker's process has stdout and stderr that lead into a connection, and a
/// thread. While the program's own code computes, that thread sends signs of life to the manager
/// and notices its loss.

#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/link/handshake.hpp>
#include <cohort/cluster/link/message.hpp>
#include <cohort/cluster/link/tcp_link.hpp>
#include <cohort/core/crypto.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/deadline.hpp>

#include <asio/ip/tcp.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// The other end is a socket in another process, so what has been written is safe there even if
/// this process is killed.
class redirection {
 public:
  redirection() = default;
  redirection(const redirection&) = delete;
  redirection& operator=(const redirection&) = delete;
  ~redirection() { restore(); }

  /// STDOUT_FILENO or STDERR_FILENO becomes a copy of `connection`, which may be closed afterwards.
  /// It can be restored if `for_a_while`. Throws std::system_error.
  void redirect(int descriptor, int connection, bool for_a_while) {
    ::fcntl(connection, F_SETFL, ::fcntl(connection, F_GETFL) & ~O_NONBLOCK);
    std::FILE* const stream = descriptor == STDOUT_FILENO ? stdout : stderr;
    std::fflush(stream);
    if (for_a_while) before(descriptor) = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
    if (::dup2(connection, descriptor) < 0) {
      throw std::system_error(errno, std::generic_category(), "dup2");
    }
    if (stream == stdout) std::setvbuf(stream, nullptr, _IOLBF, 0);
  }

  /// As they were before.
  void restore() noexcept {
    for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
      if (before(descriptor) < 0) continue;
      std::fflush(descriptor == STDOUT_FILENO ? stdout : stderr);
      ::dup2(before(descriptor), descriptor);
      ::close(std::exchange(before(descriptor), -1));
    }
  }

 private:
  int& before(int descriptor) noexcept { return before_[descriptor == STDOUT_FILENO ? 0 : 1]; }

  int before_[2] = {-1, -1};
};

/// Calls `lost`, where there is one, when the other end of the connection is closed, and says
/// whether that was announced, which it can only be where there is a period. Until then it sleeps
/// but for a heartbeat each period; it reads nothing and calls no MPI. `lost` runs on the watcher's
/// thread.
class manager_watch {
 public:
  using lost_function = std::function<void(bool announced)>;

  template <class Any = void>
  manager_watch(int connection, std::chrono::nanoseconds period, lost_function lost)
      : connection_(connection), period_(period), lost_(std::move(lost)) {
    if (::pipe2(stop_, O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe2");
    }
    // Here and not by the thread: this process may be killed before that runs, and a worker that
    // has never shown life is taken for one that goes without heartbeats.
    if (beats()) send(life_sign::beat);
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's threads
    try {
      thread_ = std::thread([this] { watch(); });
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      ::close(stop_[0]);
      ::close(stop_[1]);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~manager_watch() {
    ::close(stop_[1]);
    thread_.join();
    ::close(stop_[0]);
  }
  manager_watch(const manager_watch&) = delete;
  manager_watch& operator=(const manager_watch&) = delete;

 private:
  [[nodiscard]] bool beats() const noexcept { return period_ > period_.zero(); }
  void watch() {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(period_);
    const timespec pause{seconds.count(), (period_ - seconds).count()};
    pollfd both[] = {{connection_, POLLRDHUP, 0}, {stop_[0], 0, 0}};
    while (::ppoll(both, 2, beats() ? &pause : nullptr, nullptr) <= 0) {
      if (beats()) send(life_sign::beat);
      both[0].revents = both[1].revents = 0;  // a signal leaves them as they are
    }
    if (both[1].revents != 0) {
      pollfd room{connection_, POLLOUT, 0};
      if (beats() && ::poll(&room, 1, 1000) == 1) send(life_sign::leaves);
    } else if (lost_) {
      life_sign said{};
      lost_(beats() && ::recv(connection_, &said, 1, MSG_DONTWAIT) == 1 &&
            said == life_sign::leaves);
    }
  }
  /// A beat that finds no room is not missed: what fills the connection are others.
  void send(life_sign what) const noexcept {
    static_cast<void>(::send(connection_, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
  }

  int connection_;
  std::chrono::nanoseconds period_;
  lost_function lost_;
  int stop_[2] = {-1, -1};
  std::thread thread_;
};

namespace detail {

/// The rank that the launcher has put into the environment; -1 if it is not known.
inline int rank_in_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* const text = std::getenv(name);
    if (text != nullptr) return std::atoi(text);
  }
  return -1;
}

}  // namespace detail

/// How a worker reaches its manager.
struct worker_start {
  launch_token token{};
  std::vector<asio::ip::tcp::endpoint> managers;
  std::shared_ptr<link> control;  ///< over MPI; null: one is opened over TCP
  bool capture = true;            ///< stdout and stderr go to the manager
  bool adopted = false;           ///< this process was not started for the manager

  /// Takes it out of the environment, so that no child of this process has it. Nothing if it is
  /// not there; throws errc::invalid_argument if it makes no sense.
  template <class Any = void>
  [[nodiscard]] static std::optional<worker_start> take_from_environment() {
    const char* const token = std::getenv(token_variable);
    const char* const managers = std::getenv(manager_variable);
    if (token == nullptr || managers == nullptr) return std::nullopt;
    const std::string where = managers;
    const std::string secret = token;
    ::unsetenv(token_variable);
    ::unsetenv(manager_variable);
    return from_texts(where, secret, std::string(token_variable) + ", " + manager_variable + ": ");
  }
  /// `whose` begins the text of the error.
  template <class Any = void>
  [[nodiscard]] static worker_start from_texts(std::string_view endpoints, std::string_view token,
                                               const std::string& whose) {
    worker_start start;
    if (!parse_token(token, start.token)) {
      throw error(errc::invalid_argument,
                  whose + "the token is none: it has 32 hexadecimal digits");
    }
    start.managers = parse_endpoints(endpoints);
    if (start.managers.empty()) {
      throw error(errc::invalid_argument,
                  whose + "no address in \"" + std::string(endpoints) + "\"");
    }
    return start;
  }
};

/// Used by the thread that runs the context.
template <class Any>
class basic_way_to_manager {
 public:
  using nanoseconds = std::chrono::nanoseconds;

  basic_way_to_manager(asio::io_context& io, worker_start start)
      : io_(io), start_(std::move(start)) {}
  basic_way_to_manager(const basic_way_to_manager&) = delete;
  basic_way_to_manager& operator=(const basic_way_to_manager&) = delete;
  ~basic_way_to_manager() {
    watch_.reset();  // it would take our closing for the manager's
    if (control_) control_->close();
  }

  [[nodiscard]] bool adopted() const noexcept { return start_.adopted; }
  [[nodiscard]] bool over_mpi() const noexcept { return start_.control != nullptr; }
  /// For messages, once there is one.
  [[nodiscard]] const std::shared_ptr<link>& control() const noexcept { return control_; }
  [[nodiscard]] const auto& session() const noexcept { return hello_.session; }

  /// Connects for messages, where they do not travel over MPI.
  asio::awaitable<void> open() {
    hello_.session = random_bytes<session_size>();
    control_ = start_.control;
    if (control_) co_return;
    tcp_socket socket = co_await connect_for(purpose::control);
    // The manager has looked at the size of what it sends.
    tcp_ = std::make_shared<tcp_link>(std::move(socket), std::numeric_limits<std::size_t>::max());
    if (!adopted()) {
      watch_ =
          std::make_unique<manager_watch>(tcp_->native_handle(), nanoseconds(0), leave_if_lost());
    }
    control_ = tcp_;
  }

  /// Begins to send signs of life. `ended` is called by the loop when the manager's side has closed
  /// their connection; only in a worker that was adopted, any other leaves its process then.
  asio::awaitable<void> show_life(const welcome& wanted, std::function<void()> ended) {
    const nanoseconds patience(wanted.heartbeat_patience);
    try {
      auto connecting = connect_life();
      if (patience > patience.zero()) {
        connecting = with_deadline(std::move(connecting), patience);
      }
      co_await std::move(connecting);
      const nanoseconds period(wanted.heartbeat);
      bound_silence(*life_, silent_heartbeats * period);
      manager_watch::lost_function lost = leave_if_lost();
      if (adopted()) {
        // The watch is gone before this is, but not what it has posted.
        lost = [&io = io_, ended, here = std::weak_ptr(here_)](bool) {
          asio::post(io, [ended, here] {
            if (!here.expired()) ended();
          });
        };
      }
      watch_ = std::make_unique<manager_watch>(life_->native_handle(), period, std::move(lost));
    } catch (const std::system_error& failed) {
      if (patience == patience.zero()) throw;
      life_.reset();
      const std::string text = tcp_ ? "the end of its connection tells" : "MPI notices";
      log::write(log::level::warning,
                 "no heartbeat, so only " + text + " when this worker is lost: " + failed.what());
    }
  }

  /// Leads stdout and stderr there, where the manager wants them.
  asio::awaitable<void> redirect_outputs() {
    if (!start_.capture) co_return;
    co_await redirect(STDOUT_FILENO, purpose::standard_output);
    co_await redirect(STDERR_FILENO, purpose::standard_error);
  }
  /// Who was adopted goes on with what it had.
  void restore_outputs() { output_.restore(); }

  /// The last word has been said: what is lost now is no loss. The watch asks.
  void done() noexcept { done_ = true; }
  [[nodiscard]] bool is_done() const noexcept { return done_; }
  /// Shows no life any more.
  void stop_watching() { watch_.reset(); }
  /// The TCP connection that tells the manager, by its end, that this process is done.
  [[nodiscard]] int last_sign() {
    return tcp_ ? ::fcntl(tcp_->native_handle(), F_DUPFD_CLOEXEC, 0) : -1;
  }
  /// Expires when this ends.
  [[nodiscard]] std::weak_ptr<void> alive() const noexcept { return here_; }

  /// By whichever thread comes first: the loop, unless it computes, or the watch's.
  [[noreturn]] static void leave_process(const std::string& why) {
    static std::atomic_flag leaves;
    while (leaves.test_and_set()) ::pause();
    const int rank = process::rank.load(std::memory_order_relaxed);
    const std::string text = "cohort: worker " +
                             (rank < 0 ? std::string("?") : std::to_string(rank)) + ": " + why +
                             ", so this process leaves\n";
    // Standard error may be a connection to that manager: a closed one must not kill us first. What
    // has no room, since nobody reads it, must not keep us, or who comes second.
    pollfd room{STDERR_FILENO, POLLOUT, 0};
    if (::send(STDERR_FILENO, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
        errno == ENOTSOCK && ::poll(&room, 1, 0) == 1) {
      static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
    }
    ::_exit(1);
  }

 private:
  asio::awaitable<tcp_socket> connect_for(purpose what) {
    greeting hello = hello_;
    hello.purpose = what;
    tcp_socket socket = co_await connect(io_, start_.managers, start_.token, hello);
    // The next connection tries that address first: one that swallows what it is sent costs time.
    std::error_code unknown;
    const auto there = socket.remote_endpoint(unknown);
    auto& all = start_.managers;
    const auto at = std::find(all.begin(), all.end(), there);
    if (at != all.end()) std::rotate(all.begin(), at, at + 1);
    co_return socket;
  }
  asio::awaitable<void> redirect(int descriptor, purpose what) {
    tcp_socket socket = co_await connect_for(what);
    output_.redirect(descriptor, socket.native_handle(), adopted());
  }
  asio::awaitable<void> connect_life() { life_ = co_await connect_for(purpose::heartbeat); }

  /// On the watch's thread. Where MPI stays as it is the manager hangs up when all have said their
  /// last word, which may be before this one has left. Only on the connection for heartbeats can it
  /// be seen whether the manager lives.
  [[nodiscard]] manager_watch::lost_function leave_if_lost() {
    return [this, by_heartbeats = life_.has_value()](bool announced) {
      if (done_) return;
      leave_process(announced       ? "the manager has let this worker go"
                    : by_heartbeats ? "the manager is gone"
                                    : "the manager is gone, or has let this worker go");
    };
  }

  asio::io_context& io_;
  worker_start start_;
  greeting hello_;
  std::shared_ptr<link> control_;
  std::shared_ptr<tcp_link> tcp_;
  std::optional<tcp_socket> life_;  // signs of life go there
  std::unique_ptr<manager_watch> watch_;
  redirection output_;
  std::atomic<bool> done_{false};
  std::shared_ptr<void> here_ = std::make_shared<char>();
};
using way_to_manager = basic_way_to_manager<void>;

}  // namespace cohort::cluster
