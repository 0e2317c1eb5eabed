// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Processor time from getrusage, and a clock that all processes of a node share.

#include "support/statistics.hpp"

#include <sys/resource.h>

/// Measures from its construction on.
class cpu_time {
 public:
  /// Percent of one core since then.
  [[nodiscard]] double percent() const {
    return 100 * (used() - used_) * 1e9 / bench::nanoseconds_since(start_);
  }

 private:
  static double used() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }

  bench::clock::time_point start_ = bench::clock::now();
  double used_ = used();
};

/// What a message carries: on one node, all processes read the same steady clock.
[[nodiscard]] inline double now() {
  return std::chrono::duration<double, std::nano>(bench::clock::now().time_since_epoch()).count();
}
