// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Tells an operation whether a cancellation comes from a deadline.

namespace cohort::progress {

/// Marks, while it lives, cancellations emitted on this thread as those of a deadline that passed.
class deadline_emission {
 public:
  deadline_emission() noexcept { ++depth(); }
  ~deadline_emission() { --depth(); }
  deadline_emission(const deadline_emission&) = delete;
  deadline_emission& operator=(const deadline_emission&) = delete;

 private:
  friend bool emitting_deadline() noexcept;
  static int& depth() noexcept {
    static constinit thread_local int value = 0;
    return value;
  }
};

/// True inside the emission of a deadline's cancellation.
[[nodiscard]] inline bool emitting_deadline() noexcept { return deadline_emission::depth() > 0; }

}  // namespace cohort::progress
