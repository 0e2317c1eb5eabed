// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A clock that stands still until a test moves it.

#include <cohort/core/time.hpp>

#include <chrono>

namespace cohort::testing {

/// A `time_source` for state machines that take the time as an argument. It starts an hour after
/// the epoch of the steady clock, so that "a minute ago" is a time too, and never goes back.
/// Not synchronised.
class manual_clock {
 public:
  using duration = steady_clock::duration;
  using time_point = steady_clock::time_point;

  manual_clock() noexcept = default;
  explicit manual_clock(time_point start) noexcept : now_(start) {}

  [[nodiscard]] time_point now() const noexcept { return now_; }
  /// Lets time pass. A negative duration counts as none.
  void advance(duration passed) noexcept {
    if (passed > duration::zero()) now_ += passed;
  }
  /// Lets time pass until `then`, unless it is later already.
  void advance_to(time_point then) noexcept { advance(then - now_); }

 private:
  time_point now_{std::chrono::hours(1)};
};

static_assert(time_source<manual_clock>);

}  // namespace cohort::testing
