// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a worker's process has besides its loop: stdout and stderr that lead into a
/// connection, and a thread that notices the loss of the manager, and tells it that this process
/// lives, while the program's own code computes.

#include <cohort/cluster/link/message.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

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

}  // namespace cohort::cluster
