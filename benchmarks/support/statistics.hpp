// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Medians and percentiles of measured chunks, and ratios taken chunk by chunk.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace bench {

using clock = std::chrono::steady_clock;

[[nodiscard]] inline double nanoseconds_since(clock::time_point start) {
  return std::chrono::duration<double, std::nano>(clock::now() - start).count();
}

/// The value that `share` (0 to 1) of all values do not exceed.
[[nodiscard]] inline double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto last = static_cast<double>(values.size() - 1);
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(share * last + 0.5);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

[[nodiscard]] inline double median(std::vector<double> values) {
  return percentile(std::move(values), 0.5);
}

/// Ratios of chunks that ran right after each other. Their median stays meaningful on a machine
/// whose speed changes during a run, where the ratio of two medians does not.
[[nodiscard]] inline std::vector<double> ratios(const std::vector<double>& numerators,
                                                const std::vector<double>& denominators) {
  std::vector<double> result;
  for (std::size_t i = 0; i < std::min(numerators.size(), denominators.size()); ++i) {
    result.push_back(numerators[i] / denominators[i]);
  }
  return result;
}

/// The values whose flag is `wanted`.
[[nodiscard]] inline std::vector<double> only(const std::vector<double>& values,
                                              const std::vector<bool>& flags, bool wanted) {
  std::vector<double> result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (flags[i] == wanted) result.push_back(values[i]);
  }
  return result;
}

}  // namespace bench
