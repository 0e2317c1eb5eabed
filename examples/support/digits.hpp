// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The handwritten digits of examples/data: four fifths to train on, the others for the test.

#include <span>
#include "csv.hpp"

namespace support {

using digit = std::vector<int>;  // 64 pixels from 0 to 16, then the label
using batch = std::span<const digit>;

struct digits {
  std::vector<digit> training, held_out;

  /// Reads a file for so many ranks, or returns false and says what is wrong with it.
  bool read(const std::string& file, int ranks, std::string& trouble) try {
    std::vector<std::array<int, 2>> ranges(65, {0, 16});
    ranges.back() = {0, 9};
    auto rows = read_csv(file, ranges);
    for (std::size_t i = 0; i < rows.size(); ++i)
      (i % 5 == 4 ? held_out : training).push_back(std::move(rows[i]));
    if (!held_out.empty() && training.size() >= static_cast<std::size_t>(ranks)) return true;
    trouble = file + ": too few rows for " + std::to_string(ranks) + " ranks and a test";
    return false;
  } catch (const std::exception& e) {
    trouble = e.what();
    return false;
  }
};

/// The i-th of n parts of almost equal size.
inline batch part(batch all, std::size_t i, std::size_t n) {
  return all.subspan(all.size() * i / n, all.size() * (i + 1) / n - all.size() * i / n);
}

}  // namespace support
