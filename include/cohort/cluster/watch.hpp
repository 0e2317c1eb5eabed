// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A thread that notices the loss of the manager while the program's own code computes.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

namespace cohort::cluster {

/// Calls `lost` when the other end of the connection is closed. It reads nothing, calls no MPI and
/// sleeps until then. `lost` runs on the watcher's thread.
class manager_watch {
 public:
  manager_watch(int connection, std::function<void()> lost) : lost_(std::move(lost)) {
    if (::pipe2(stop_, O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe2");
    }
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's threads
    thread_ = std::thread([this, connection] { watch(connection); });
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
  void watch(int connection) {
    pollfd both[] = {{connection, POLLRDHUP, 0}, {stop_[0], 0, 0}};
    while (::poll(both, 2, -1) < 0 && errno == EINTR) {
    }
    if (both[1].revents == 0 && both[0].revents != 0) lost_();
  }

  std::function<void()> lost_;
  int stop_[2] = {-1, -1};
  std::thread thread_;
};

}  // namespace cohort::cluster
