// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of mpi/layout.hpp.

#include <cohort/core/error.hpp>
#include <cohort/mpi/layout.hpp>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace cohort::mpi {

COHORT_INLINE blocks::blocks(std::span<const std::size_t> counts, MPI_Datatype type) : type_(type) {
  std::vector<std::size_t> displacements(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), displacements.begin(), std::size_t{0});
  assign(counts, displacements);
}

COHORT_INLINE blocks::blocks(std::span<const std::size_t> counts,
                             std::span<const std::size_t> displacements, MPI_Datatype type)
    : type_(type) {
  if (counts.size() != displacements.size()) {
    throw error(errc::size_mismatch, "blocks: counts=" + std::to_string(counts.size()) +
                                         ", displacements=" + std::to_string(displacements.size()));
  }
  assign(counts, displacements);
}

COHORT_INLINE void blocks::assign(std::span<const std::size_t> counts,
                                  std::span<const std::size_t> displacements) {
  std::size_t largest = 0;
  std::size_t unit = 0;
  for (const auto& list : {counts, displacements}) {
    for (const std::size_t number : list) {
      largest = std::max(largest, number);
      unit = std::gcd(unit, number);
    }
  }
  if (largest > INT_MAX && has_large_counts) {
    large_counts_.assign(counts.begin(), counts.end());
    large_displacements_.assign(displacements.begin(), displacements.end());
    return;
  }
  if (largest > INT_MAX) {
    if (largest / unit > INT_MAX) {
      throw error(errc::count_too_large, "blocks: largest=" + std::to_string(largest) +
                                             ", common unit=" + std::to_string(unit));
    }
    owned_ = contiguous_type(unit, type_);
    type_ = owned_.native();
  } else {
    unit = 1;
  }
  const auto scaled = [unit](std::size_t number) { return static_cast<int>(number / unit); };
  counts_.resize(counts.size());
  displacements_.resize(displacements.size());
  std::transform(counts.begin(), counts.end(), counts_.begin(), scaled);
  std::transform(displacements.begin(), displacements.end(), displacements_.begin(), scaled);
}

COHORT_INLINE void blocks::widen() {
  if (!large()) {
    large_counts_.assign(counts_.begin(), counts_.end());
    large_displacements_.assign(displacements_.begin(), displacements_.end());
  }
}

}  // namespace cohort::mpi
