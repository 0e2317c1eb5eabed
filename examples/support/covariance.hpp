// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A covariance matrix of handwritten digits, in tiles.

#include <cmath>
#include "digits.hpp"
#include "tiles.hpp"

namespace support {

/// A covariance matrix as a Gaussian process has it: the more alike two digits are, the larger.
struct covariance {
  batch digits;
  int tiles;
  std::size_t side;    ///< of a tile
  double ridge = 0.1;  ///< added to the diagonal

  std::size_t size() const { return std::size_t(tiles) * side; }
  double at(std::size_t row, std::size_t column) const {
    double distance = 0;
    for (std::size_t p = 0; p < 64; ++p)
      distance += std::pow(double(digits[row][p] - digits[column][p]) / 16, 2);
    return std::exp(-distance / 16) + (row == column ? ridge : 0);
  }
  tile load(int i, int j) const {
    tile made;
    for (std::size_t r = 0; r < side; ++r)
      for (std::size_t c = 0; c < side; ++c)
        made.push_back(at(std::size_t(i) * side + r, std::size_t(j) * side + c));
    return made;
  }
};

}  // namespace support
