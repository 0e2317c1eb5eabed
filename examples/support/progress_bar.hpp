// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A progress bar that moves on a terminal and heads every line it prints.

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace support {

/// Counts to `total` steps; prints nothing unless `shown`, which one rank of a job asks for.
class progress_bar {
 public:
  progress_bar(std::size_t total, bool shown) : total_{total}, shown_{shown} {
    // Open MPI makes stdout a terminal even when it ends in a file: is there a real one as well?
    live_ = shown && isatty(STDOUT_FILENO) != 0 && std::ofstream{"/dev/tty"}.is_open();
  }
  /// Counts one step and, on a terminal, redraws the bar.
  void advance() {
    ++done_;
    if (live_) draw();
  }
  /// Prints the bar and, formatted as by printf, a text behind it; such a line stays.
  void line(const char* format, const auto&... values) const {
    if (!shown_) return;
    draw();
    std::printf(format, plain(values)...);
    std::puts("");
  }

 private:
  void draw() const {
    const int filled = static_cast<int>(20 * done_ / total_);
    std::printf("%s[%-20.*s] ", live_ ? "\r" : "", filled, "####################");
    std::fflush(stdout);
  }
  static auto plain(auto value) { return value; }
  static auto plain(const std::string& value) { return value.c_str(); }
  std::size_t total_, done_ = 0;
  bool shown_, live_;
};

}  // namespace support
