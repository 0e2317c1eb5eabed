// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What op::adasum must give, by one process that has all ranks' vectors: written for itself,
/// line by line what numpy does with arrays.

#include <cohort/core/element.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort_test {

/// numpy's sum() of a contiguous array: pairwise, from blocks of at most 128.
inline double numpy_sum(std::span<const double> of) {
  if (of.size() > 128) {
    std::size_t half = of.size() / 2;
    half -= half % 8;
    return numpy_sum(of.first(half)) + numpy_sum(of.subspan(half));
  }
  double sum = 0;
  if (of.size() >= 8) {
    std::vector<double> r(of.begin(), of.begin() + 8);
    while (of.size() >= 16) {
      of = of.subspan(8);
      for (std::size_t i = 0; i < 8; ++i) r[i] += of[i];
    }
    of = of.subspan(8);
    sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  }
  for (const double each : of) sum += each;
  return sum;
}

template <class T>
std::vector<double> astype_f8(const std::vector<T>& from) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::vector<double>(from.begin(), from.end());
  } else {
    std::vector<double> to;
    for (const T each : from) to.push_back(static_cast<float>(each));
    return to;
  }
}

template <class T>
std::vector<T> adasum_of_two(const std::vector<T>& a, const std::vector<T>& b) {
  const std::vector<double> a8 = astype_f8(a);
  const std::vector<double> b8 = astype_f8(b);
  const auto sum_of_products = [](const std::vector<double>& x, const std::vector<double>& y) {
    std::vector<double> products(x.size());
    std::ranges::transform(x, y, products.begin(), std::multiplies<>());
    return numpy_sum(products);
  };
  const double ab = sum_of_products(a8, b8);
  const double aa = sum_of_products(a8, a8);
  const double bb = sum_of_products(b8, b8);
  const double of_a = aa < std::ldexp(1.0, -511) ? 1 : 1 - ab / aa / 2;
  const double of_b = bb < std::ldexp(1.0, -511) ? 1 : 1 - ab / bb / 2;
  std::vector<T> sum;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double left = of_a * a8[i];
    const double right = of_b * b8[i];
    if constexpr (std::is_floating_point_v<T>) {
      sum.push_back(static_cast<T>(left + right));
    } else {
      sum.push_back(static_cast<T>(static_cast<float>(left + right)));
    }
  }
  return sum;
}

/// Of the vectors of all ranks, in their order.
template <class T>
std::vector<T> adasum_of_all(std::vector<std::vector<T>> of) {
  const std::size_t paired = std::bit_floor(of.size());
  for (std::size_t i = paired; i < of.size(); ++i) {
    of[i - paired] = adasum_of_two(of[i - paired], of[i]);
  }
  of.resize(paired);
  while (of.size() > 1) {
    std::vector<std::vector<T>> of_pairs;
    for (std::size_t i = 0; i < of.size(); i += 2) {
      of_pairs.push_back(adasum_of_two(of[i], of[i + 1]));
    }
    of = std::move(of_pairs);
  }
  return of.front();
}

/// A rank's vector, which has something in common with those of the others and something not.
template <class T>
std::vector<T> gradient_of(int rank, std::size_t count, unsigned seed = 1) {
  std::mt19937 common(seed);
  std::mt19937 own(100 * seed + static_cast<unsigned>(rank));
  std::vector<T> all(count);
  for (T& each : all) {
    const auto draw = [](std::mt19937& from) { return static_cast<float>(from()) * 0x1p-31F - 1; };
    const float shared = draw(common);
    each = static_cast<T>(shared + draw(own) / 2);
  }
  return all;
}
template <class T>
std::vector<T> adasum_of_gradients(int ranks, std::size_t count, unsigned seed = 1) {
  std::vector<std::vector<T>> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(gradient_of<T>(rank, count, seed));
  return adasum_of_all(std::move(all));
}

/// Bit by bit.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace cohort_test
