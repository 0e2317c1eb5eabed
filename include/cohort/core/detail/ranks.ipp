// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of core/ranks.hpp.

#include <cohort/core/ranks.hpp>

#include <algorithm>

namespace cohort {

COHORT_INLINE ranks ranks::stride(int first, int last, int step) {
  if (step <= 0) {
    throw error(errc::invalid_argument, "ranks::stride: step=" + std::to_string(step));
  }
  ranks result;
  for (int rank = first; rank < last; rank += step) {
    result.list_.push_back(rank);
  }
  result.validate();
  return result;
}

COHORT_INLINE int ranks::position_of(int rank) const noexcept {
  const auto found = std::find(list_.begin(), list_.end(), rank);
  return found == list_.end() ? -1 : static_cast<int>(found - list_.begin());
}

COHORT_INLINE std::string ranks::str() const {
  std::string text;
  for (const int rank : list_) {
    text += text.empty() ? std::to_string(rank) : ", " + std::to_string(rank);
  }
  return text;
}

COHORT_INLINE void ranks::validate() const {
  std::vector<int> sorted = list_;
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty() && sorted.front() < 0) {
    throw error(errc::bad_rank, "ranks: rank=" + std::to_string(sorted.front()));
  }
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    throw error(errc::bad_rank, "ranks: rank " + std::to_string(*twice) + " is repeated");
  }
}

}  // namespace cohort
