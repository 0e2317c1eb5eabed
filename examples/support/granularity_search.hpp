// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file METG(50 %), the minimum effective task granularity (Slaughter et al., SC20): how long
/// tasks must take so that half of the time is work.

#include <algorithm>
#include <cmath>

namespace support {

/// Says how much work is to be in each task of the next run, and is told how long that took:
/// first twice as much each time until half of the time is work, then between the last two.
class granularity_search {
 public:
  explicit granularity_search(long most_rounds = 1L << 15) : most_(most_rounds) {}

  bool done() const { return done_; }
  long rounds() const { return next_; }  ///< in each task of the next run
  /// In nanoseconds of one core, for each task: all of it, and the work alone.
  void tried(double whole, double work) {
    const measured now{double(next_), whole, work / whole};
    if (now.efficiency < 0.5) {
      low_ = now;
    } else {
      high_ = now;
    }
    const bool enclosed = high_.rounds > 0;
    if (!enclosed) {
      done_ = next_ >= most_;
      next_ *= 2;
      return;
    }
    next_ = std::lround((low_.rounds + high_.rounds) / 2);
    done_ = ++halvings_ > 4 || double(next_) <= low_.rounds || double(next_) >= high_.rounds;
  }
  bool found() const { return done_ && high_.rounds > 0; }
  /// Requires `found()`: nanoseconds of a core for each task where half of them is work.
  double metg() const {
    if (low_.rounds <= 0) return high_.whole;  // the first try had enough work
    const double part = (0.5 - low_.efficiency) / (high_.efficiency - low_.efficiency);
    return low_.whole + part * (high_.whole - low_.whole);
  }

 private:
  struct measured {
    double rounds = 0, whole = 0, efficiency = 0;
  };
  measured low_, high_;
  long most_, next_ = 1;
  int halvings_ = 0;
  bool done_ = false;
};

}  // namespace support
