// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a Cholesky factorisation does to square tiles of a matrix, in plain loops.

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace support {

using tile = std::vector<double>;  // row by row

inline std::size_t side(const tile& square) {
  return static_cast<std::size_t>(std::lround(std::sqrt(double(square.size()))));
}

/// The lower triangle L of L L^T = a; zeros above.
inline tile factor(tile a) {
  const std::size_t n = side(a);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      if (i == j && !(sum > 0)) throw std::domain_error("the matrix is not positive definite");
      a[i * n + j] = i == j ? std::sqrt(sum) : sum / a[j * n + j];
    }
    for (std::size_t j = i + 1; j < n; ++j) a[i * n + j] = 0;
  }
  return a;
}

inline tile transposed(const tile& a) {
  const std::size_t n = side(a);
  tile result(a.size());
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) result[j * n + i] = a[i * n + j];
  return result;
}

/// X of X L^T = a, where L is the lower triangle `diagonal`: four rows at a time, each column
/// subtracted from those to its right.
inline tile solve(const tile& diagonal, tile a) {
  const std::size_t n = side(a);
  const tile upper = transposed(diagonal);
  for (std::size_t first = 0; first < n; first += 4) {
    const std::size_t end = first + 4 < n ? first + 4 : n;
    for (std::size_t k = 0; k < n; ++k) {
      const double* const u = &upper[k * n];
      for (std::size_t i = first; i < end; ++i) {
        double* const x = &a[i * n];
        x[k] /= u[k];
        const double now = x[k];
        for (std::size_t j = k + 1; j < n; ++j) x[j] -= now * u[j];
      }
    }
  }
  return a;
}

/// Four rows of c by eight columns of `b`, which is packed so that these lie side by side.
inline void update_block(const double* a, const double* b, double* c, std::size_t n) {
  double sum[4][8] = {};
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < 8; ++j) sum[i][j] += a[i * n + k] * b[k * 8 + j];
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 8; ++j) c[i * n + j] -= sum[i][j];
}

/// c - row column^T.
inline tile update(const tile& row, const tile& column, tile c) {
  const std::size_t n = side(c);
  tile packed(8 * n);
  const auto plain = [&](std::size_t i, std::size_t j) {
    double sum = 0;
    for (std::size_t k = 0; k < n; ++k) sum += row[i * n + k] * column[j * n + k];
    c[i * n + j] -= sum;
  };
  for (std::size_t j = 0; j + 8 <= n; j += 8) {
    for (std::size_t k = 0; k < 8 * n; ++k) packed[k] = column[(j + k % 8) * n + k / 8];
    for (std::size_t i = 0; i + 4 <= n; i += 4)
      update_block(&row[i * n], packed.data(), &c[i * n + j], n);
  }
  for (std::size_t i = 0; i < n; ++i)  // what is left of sides that are no multiples
    for (std::size_t j = i < n / 4 * 4 ? n / 8 * 8 : 0; j < n; ++j) plain(i, j);
  return c;
}

}  // namespace support
