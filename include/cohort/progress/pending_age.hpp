// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How long something has been pending.

#include <chrono>
#include <string>

namespace cohort::progress {

/// It begins when a tick of the engine first sees it, unless its source says when: the engine's own
/// time is stale when the loop has slept or a handler has computed for long, and reading the clock
/// at each start would cost a twentieth of it.
struct pending_age {
  std::chrono::steady_clock::time_point since{};
  bool reported = false;  ///< a warning has named it

  [[nodiscard]] bool has_begun() const noexcept {
    return since != std::chrono::steady_clock::time_point();
  }
  /// "pending for 12 ms", or "just started".
  [[nodiscard]] std::string text(std::chrono::steady_clock::time_point now) const {
    return has_begun() ? "pending for " + milliseconds(now) : "just started";
  }
  /// "12 ms"
  [[nodiscard]] std::string milliseconds(std::chrono::steady_clock::time_point now) const {
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - since);
    return std::to_string(age.count()) + " ms";
  }
};

}  // namespace cohort::progress
