// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file This process's stdout and stderr, led into a connection.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
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

}  // namespace cohort::cluster
