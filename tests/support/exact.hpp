// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Numbers that compression keeps, for its tests on hosts and on devices.

#include <cohort/coordinator/options.hpp>

#include <cstddef>
#include <vector>

namespace cohort_test {

inline cohort::call_options compressed(cohort::compression how) {
  cohort::call_options options;
  options.compression = how;
  return options;
}

/// Whole numbers of which sums over four ranks have at most eight significant bits.
template <class T>
std::vector<T> exact(std::size_t count, int rank) {
  std::vector<T> data(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = static_cast<T>(static_cast<int>(i % 21) - 10 + rank * static_cast<int>(i % 5));
  }
  return data;
}
template <class T>
std::vector<T> exact_sum(std::size_t count, int ranks) {
  std::vector<T> sum(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<T> mine = exact<T>(count, rank);
    for (std::size_t i = 0; i < count; ++i) sum[i] += mine[i];
  }
  return sum;
}

}  // namespace cohort_test
