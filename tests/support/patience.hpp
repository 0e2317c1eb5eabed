// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How long a test waits before it gives up, on a machine that is slow or has other work.

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace cohort_test {

/// The environment variable COHORT_TEST_PATIENCE, which ctest sets to CMake's variable of that
/// name: 4 with sanitizers.
[[nodiscard]] inline int patience() {
  static const int factor = [] {
    const char* const text = std::getenv("COHORT_TEST_PATIENCE");
    const int number = text == nullptr ? 1 : std::atoi(text);
    return number < 1 ? 1 : number;
  }();
  return factor;
}

/// A bound that no run comes near to unless something is wrong, times the patience. Not for what
/// the library is told or promises, unless somebody must have answered within it: only for how long
/// a test waits for that.
template <class Rep, class Period>
[[nodiscard]] std::chrono::duration<Rep, Period> patient(std::chrono::duration<Rep, Period> bound) {
  return bound * patience();
}

/// How many of `all` random programs a build with sanitizers has the time for; on a machine that is
/// only busy, no fewer.
[[nodiscard]] inline unsigned some_of(unsigned all) {
  return all / static_cast<unsigned>(std::min(patience(), 4));
}

}  // namespace cohort_test
