// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How long operations have been pending, and the warning about those that take long: what the
/// sources of an engine share.

#include <cohort/core/clock.hpp>
#include <cohort/core/duration.hpp>
#include <cohort/core/log.hpp>

#include <chrono>
#include <string>

namespace cohort::progress {

/// How long something has been pending. It begins when a tick of the engine first sees it, unless
/// its source says when: the engine's own time is stale when the loop has slept or a handler has
/// computed for long, and reading the clock at each start would cost a twentieth of it.
struct pending_age {
  steady_clock::time_point since{};
  bool reported = false;  ///< a warning has named it

  [[nodiscard]] bool has_begun() const noexcept { return since != steady_clock::time_point(); }
  /// "pending for 12 ms", or "just started".
  [[nodiscard]] std::string text(steady_clock::time_point now) const {
    return has_begun() ? "pending for " + milliseconds(now) : "just started";
  }
  /// "12 ms"
  [[nodiscard]] std::string milliseconds(steady_clock::time_point now) const {
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - since);
    return std::to_string(age.count()) + " ms";
  }
};

/// Names what has been pending for longer than `COHORT_STALL_WARNING` says, once each; nothing
/// where the variable is not set, or zero.
class stall_watch {
 public:
  /// Throws error(errc::invalid_argument) if the variable is no duration.
  stall_watch() {
    if (const auto limit = duration_from_environment("COHORT_STALL_WARNING")) limit_ = *limit;
  }

  /// Whether anything is named.
  [[nodiscard]] bool is_on() const noexcept { return limit_ > limit_.zero(); }
  /// At a tick, for each that is pending: whether it is to be named now.
  [[nodiscard]] bool is_due(pending_age& age, steady_clock::time_point now) const noexcept {
    if (!age.has_begun()) age.since = now;
    if (!is_on() || age.reported || now - age.since < limit_) return false;
    age.reported = true;
    return true;
  }
  /// After a tick, and without a lock. `lines` begin with a line break each.
  static void warn(const std::string& lines) {
    if (!lines.empty()) log::write(log::level::warning, "stalled:" + lines);
  }

 private:
  std::chrono::nanoseconds limit_{0};
};

}  // namespace cohort::progress
