// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

#include <map>
#include <vector>

namespace {

/// One row after the other.
std::uint64_t last_of_square(std::uint64_t side) {
  std::vector<std::uint64_t> row(side, 0);
  for (std::uint64_t i = 0; i < side; ++i) {
    std::uint64_t left = 0;
    for (std::uint64_t& value : row) left = value = value + left + 1;
  }
  return row.empty() ? 0 : row.back();
}

}  // namespace

std::uint64_t shape::result() const {
  if (of == pattern::independent) return 1;
  if (of != pattern::wavefront) return tasks;
  static std::map<std::uint64_t, std::uint64_t> known;
  const auto [place, is_new] = known.try_emplace(side, 0);
  if (is_new) place->second = last_of_square(side);
  return place->second;
}
