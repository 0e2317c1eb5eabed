// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How long something has been pending.

#include <cstdint>
#include <string>

namespace cohort::progress {

/// It begins when a tick of the engine first sees it, unless its source says when: the engine's own
/// time is stale when the loop has slept or a handler has computed for long, and reading the clock
/// at each start would cost a twentieth of it.
///
/// `Time` is `steady_clock::time_point`. (Not by name: <chrono> is a fifth of what a file reads
/// that blocks.)
struct pending_age {
  bool reported = false;  ///< a warning has named it

  constexpr pending_age() noexcept {}
  template <class Time>
  explicit pending_age(Time since) noexcept {
    begin(since);
  }
  template <class Time>
  void begin(Time now) noexcept {
    since_ = now.time_since_epoch().count();
  }
  [[nodiscard]] bool has_begun() const noexcept { return since_ != 0; }
  template <class Time>
  [[nodiscard]] typename Time::duration length(Time now) const noexcept {
    return now - Time(typename Time::duration(since_));
  }
  /// "pending for 12 ms", or "just started".
  template <class Time>
  [[nodiscard]] std::string text(Time now) const {
    return has_begun() ? "pending for " + milliseconds(now) : "just started";
  }
  /// "12 ms"
  template <class Time>
  [[nodiscard]] std::string milliseconds(Time now) const {
    using period = typename Time::duration::period;
    return std::to_string(length(now).count() * 1000 * period::num / period::den) + " ms";
  }

 private:
  std::int64_t since_ = 0;
};

}  // namespace cohort::progress
