// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How a started process is looked after, and how one has ended.

#include <cohort/cluster/line_assembler.hpp>
#include <cohort/cluster/output_line.hpp>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>

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

}  // namespace cohort::cluster
