// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::flatten`: data of several dimensions as the view that verbs work on, for who
/// writes buffer_traits.

#include <cohort/core/buffer.hpp>
#include <cohort/core/error.hpp>

#include <array>
#include <concepts>
#include <cstddef>

namespace cohort {

/// Data of `N` dimensions as regularly strided memory: dimension `i` has `extents[i]` elements, at
/// a distance of `strides[i]` elements. They travel in the order of their addresses, whatever the
/// order of the dimensions. Throws errc::not_supported if that takes more than two strides, or two
/// of which none is 1: copy such data first.
///
/// \code
/// std::vector<double> rows_of_30(20 * 30);
/// const std::array<std::size_t, 2> extents{20, 2};
/// const std::array<std::ptrdiff_t, 2> strides{30, 1};
/// const auto two_columns = cohort::flatten(&rows_of_30[4], extents, strides);
/// co_await cohort::broadcast(world, two_columns, 0);
/// \endcode
template <class T, std::size_t N>
[[nodiscard]] constexpr buffer_view<T> flatten(T* data, const std::array<std::size_t, N>& extents,
                                               const std::array<std::ptrdiff_t, N>& strides);

/// The same for a view `V` that tells its extents and strides one by one, as `std::mdspan` does.
template <std::size_t N, class T, class V>
  requires requires(const V& view) {
    { view.extent(0) } -> std::convertible_to<std::size_t>;
    { view.stride(0) } -> std::convertible_to<std::ptrdiff_t>;
  }
[[nodiscard]] constexpr buffer_view<T> flatten(T* data, const V& view) {
  std::array<std::size_t, N> extents{};
  std::array<std::ptrdiff_t, N> strides{};
  for (std::size_t i = 0; i < N; ++i) {
    extents[i] = static_cast<std::size_t>(view.extent(i));
    strides[i] = static_cast<std::ptrdiff_t>(view.stride(i));
  }
  return flatten(data, extents, strides);
}

// 1. Leave out dimensions of one element, 2. order the rest by stride, 3. merge neighbours that
// continue each other. What is left must be one dimension, or rows of adjacent elements.
template <class T, std::size_t N>
constexpr buffer_view<T> flatten(T* data, const std::array<std::size_t, N>& extents,
                                 const std::array<std::ptrdiff_t, N>& strides) {
  struct dimension {
    std::size_t extent;
    std::ptrdiff_t stride;
  };
  std::array<dimension, N> dimensions{};
  std::size_t used = 0;
  std::size_t count = 1;
  for (std::size_t i = 0; i < N; ++i) {
    count *= extents[i];
    if (extents[i] == 1) continue;
    // By insertion: g++ 12 takes std::sort of so few for an access out of bounds and warns.
    std::size_t at = used++;
    for (; at != 0 && strides[i] < dimensions[at - 1].stride; --at) {
      dimensions[at] = dimensions[at - 1];
    }
    dimensions[at] = {extents[i], strides[i]};
  }
  if (count == 0 || used == 0) return contiguous_view(data, count);
  std::size_t last = 0;
  for (std::size_t i = 1; i < used; ++i) {
    auto& inner = dimensions[last];
    if (dimensions[i].stride == inner.stride * static_cast<std::ptrdiff_t>(inner.extent)) {
      inner.extent *= dimensions[i].extent;
    } else {
      dimensions[++last] = dimensions[i];
    }
  }
  const bool unit = dimensions[0].stride == 1;
  if (last == 0) {
    return unit ? contiguous_view(data, count)
                : buffer_view<T>{data, count, 1, dimensions[0].stride};
  }
  if (last > 1 || !unit) {
    throw error(errc::not_supported, "data of several dimensions that need more than one stride");
  }
  return {data, count, dimensions[0].extent, dimensions[1].stride};
}

}  // namespace cohort
