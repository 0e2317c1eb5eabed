// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What `op::adasum` calculates, and in which pairs the ranks do it. Pure functions: with
/// which messages is the affair of others.
///
/// Of two vectors a and b it is (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b: their sum where they are
/// orthogonal, their average where they are parallel. Of all ranks' vectors it is taken in a tree
/// that is the same for every type and transport. Be p the largest power of two that is not above
/// the number of ranks n:
/// 1. The ranks r from p on are taken to the ranks r - p.
/// 2. Of the p ranks 0 and 1 are paired, 2 and 3, and so on, then pairs with pairs, and so on.
///
/// *Source*: Maleki et al., Scaling Distributed Training with Adaptive Summation, MLSys 2021.

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>

namespace cohort {

/// What a rank does with its vector in one stage.
struct adasum_stage {
  int partner = -1;  ///< the other rank; -1: nothing to do
  bool sends = false;
  bool receives = false;
  bool combines = false;  ///< what comes with its own; if not, what comes is the result
};

/// All ranks' stages: into the first p ranks, log2(p) exchanges, and back to the others.
[[nodiscard]] constexpr int adasum_stages(int ranks) noexcept {
  return 1 + std::bit_width(static_cast<unsigned>(ranks));
}
[[nodiscard]] constexpr adasum_stage adasum_stage_of(int stage, int rank, int ranks) noexcept {
  const int paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  const bool is_first = stage == 0;
  if (is_first || stage == adasum_stages(ranks) - 1) {
    if (rank >= paired) return {rank - paired, is_first, !is_first, false};
    if (rank < ranks - paired) return {rank + paired, !is_first, is_first, is_first};
    return {};
  }
  if (rank >= paired) return {};
  return {rank ^ (1 << (stage - 1)), true, true, true};
}

namespace detail {

struct products {
  double ab;
  double aa;
  double bb;
};
inline constexpr std::size_t products_block = 128;

// Three sums at once, in the order of numpy's sum(). [numpy, pairwise_sum]
inline products products_of_block(const double* a, const double* b, std::size_t n) noexcept {
  constexpr std::size_t lanes = 8;
  products all{0, 0, 0};
  std::size_t i = 0;
  if (n >= lanes) {
    std::array<double, lanes> ab;
    std::array<double, lanes> aa;
    std::array<double, lanes> bb;
    for (std::size_t k = 0; k < lanes; ++k) {
      ab[k] = a[k] * b[k];
      aa[k] = a[k] * a[k];
      bb[k] = b[k] * b[k];
    }
    for (i = lanes; i + lanes <= n; i += lanes) {
      for (std::size_t k = 0; k < lanes; ++k) {
        ab[k] += a[i + k] * b[i + k];
        aa[k] += a[i + k] * a[i + k];
        bb[k] += b[i + k] * b[i + k];
      }
    }
    const auto sum = [](const std::array<double, lanes>& r) {
      return ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    };
    all = {sum(ab), sum(aa), sum(bb)};
  }
  for (; i < n; ++i) {
    all.ab += a[i] * b[i];
    all.aa += a[i] * a[i];
    all.bb += b[i] * b[i];
  }
  return all;
}

/// `n` elements as double, at most a block of them.
template <class T>
const double* as_doubles(const T* from, std::size_t n, std::array<double, products_block>& room) {
  if constexpr (std::same_as<T, double>) {
    return from;
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (std::floating_point<T>) {
        room[i] = from[i];
      } else {
        room[i] = static_cast<float>(from[i]);
      }
    }
    return room.data();
  }
}

template <class T>
products products_of(const T* a, const T* b, std::size_t n) noexcept {
  if (n <= products_block) {
    std::array<double, products_block> of_a;
    std::array<double, products_block> of_b;
    return products_of_block(as_doubles(a, n, of_a), as_doubles(b, n, of_b), n);
  }
  const std::size_t first = n / 2 - n / 2 % 8;
  const products left = products_of(a, b, first);
  const products right = products_of(a + first, b + first, n - first);
  return {left.ab + right.ab, left.aa + right.aa, left.bb + right.bb};
}

}  // namespace detail

/// out = the Adasum of a and b, of `n` elements each; `out` may be one of them. T is float, double,
/// or a type of 16 bits that converts from and to float.
///
/// Everything is calculated in double; what comes out is rounded once (to 16 bits: to float and
/// from there). Exactly this is, in numpy,
///
///     ab, aa, bb = (a8 * b8).sum(), (a8 * a8).sum(), (b8 * b8).sum()  # a8 = a.astype('f8'), …
///     weight = lambda norm: 1 if norm < 2**-511 else 1 - ab / norm / 2
///     out = (weight(aa) * a8 + weight(bb) * b8).astype(a.dtype)
///
/// unless the compiler is allowed to contract multiplications with additions. A vector whose |a|²
/// is below 2^-511, the root of the smallest normal number, counts as zero: it is added. NaN or
/// infinity anywhere, or a |a|² that overflows, makes the whole result NaN.
template <class T>
void adasum_of(T* out, const T* a, const T* b, std::size_t n) noexcept {
  const detail::products of = detail::products_of(a, b, n);
  const auto weight = [&of](double norm) { return norm < 0x1p-511 ? 1 : 1 - of.ab / norm / 2; };
  const double of_a = weight(of.aa);
  const double of_b = weight(of.bb);
  for (std::size_t i = 0; i < n; ++i) {
    if constexpr (std::floating_point<T>) {
      out[i] = static_cast<T>(of_a * static_cast<double>(a[i]) + of_b * static_cast<double>(b[i]));
    } else {
      const double sum = of_a * static_cast<float>(a[i]) + of_b * static_cast<float>(b[i]);
      out[i] = static_cast<T>(static_cast<float>(sum));
    }
  }
}

}  // namespace cohort
