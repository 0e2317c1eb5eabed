// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Numbers that compression keeps, for its tests on hosts and on devices.

#include <cohort/coordinator/options.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
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

/// Others, which are rounded: a rank's, and the sums over all ranks.
struct inexact {
  std::vector<double> mine;
  std::vector<double> sum;

  inexact(std::size_t count, int rank, int ranks) : mine(count), sum(count) {
    std::mt19937 random(17);
    for (int one = 0; one < ranks; ++one) {
      for (std::size_t i = 0; i < count; ++i) {
        const double value = 0.5 + static_cast<double>(random() % 100'000) / 1e5;
        if (one == rank) mine[i] = value;
        sum[i] += value;
      }
    }
  }
  /// How far `seen` is from the sums at most, as a part of them.
  [[nodiscard]] double worst(const std::vector<double>& seen) const {
    double found = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      found = std::max(found, std::abs(seen[i] - sum[i]) / sum[i]);
    }
    return found;
  }
};

}  // namespace cohort_test
