// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Regularly strided data: the view that every buffer becomes, and a strided view to build
/// one.

#include <cohort/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

namespace cohort {

/// The one form every buffer argument is turned into: `count` elements in blocks of `block` that
/// start every `stride` elements. Contiguous data is a single block. Borrows; knows no owner.
template <class T>
struct buffer_view {
  T* data = nullptr;
  std::size_t count = 0;
  std::size_t block = 0;
  std::ptrdiff_t stride = 0;

  /// Whether the elements lie side by side.
  [[nodiscard]] constexpr bool contiguous() const noexcept {
    return block >= count || stride == static_cast<std::ptrdiff_t>(block);
  }
  /// The bytes of all elements, without the gaps.
  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return count * sizeof(T); }
  /// How many blocks there are.
  [[nodiscard]] constexpr std::size_t blocks() const noexcept {
    return block == 0 ? 0 : count / block;
  }
  constexpr operator buffer_view<const T>() const noexcept  // NOLINT(*-explicit-*)
    requires(!std::is_const_v<T>)
  {
    return {data, count, block, stride};
  }
};

/// A view of `count` elements that lie side by side.
template <class T>
[[nodiscard]] constexpr buffer_view<T> contiguous_view(T* data, std::size_t count) noexcept {
  return {data, count, count, static_cast<std::ptrdiff_t>(count)};
}

/// Blocks of elements at a regular distance, for example a column or a rectangle of a row-major
/// matrix: `strided_view(&m[0][j], rows, 1, columns)`. A buffer like any other; verbs transfer it
/// by a derived datatype, and reductions pack it.
template <class T>
class strided_view {
 public:
  /// `blocks` blocks of `block` elements whose first elements are `stride` elements apart.
  constexpr strided_view(T* data, std::size_t blocks, std::size_t block,
                         std::ptrdiff_t stride) noexcept
      : view_{data, blocks * block, block, stride} {}

  [[nodiscard]] constexpr T* data() const noexcept { return view_.data; }
  /// The number of elements in all blocks together.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return view_.count; }
  [[nodiscard]] constexpr std::size_t blocks() const noexcept { return view_.blocks(); }
  [[nodiscard]] constexpr std::size_t block() const noexcept { return view_.block; }
  [[nodiscard]] constexpr std::ptrdiff_t stride() const noexcept { return view_.stride; }
  [[nodiscard]] constexpr buffer_view<T> view() const noexcept { return view_; }

 private:
  buffer_view<T> view_;
};

/// Copies the elements of a view side by side to `out`, in the order of the view.
template <class T>
void pack(buffer_view<T> from, std::remove_const_t<T>* out);

/// The reverse: copies elements that lie side by side into a view.
template <class T>
  requires(!std::is_const_v<T>)
void unpack(const T* in, buffer_view<T> to);

/// A multidimensional view in the manner of std::mdspan over plain memory.
template <class V>
concept mdspan_like = requires(const V& view) {
  typename V::element_type;
  { view.data_handle() } -> std::same_as<typename V::element_type*>;
  { V::rank() } -> std::convertible_to<std::size_t>;
  view.extent(0);
  view.stride(0);
} && (V::rank() >= 1);

/// Reads a multidimensional view as regularly strided memory. Elements travel in the order of their
/// addresses, whatever the order of the dimensions. Throws errc::not_supported if more than two
/// strides are needed, or two of which none is 1: copy such data first.
template <mdspan_like V>
[[nodiscard]] constexpr buffer_view<typename V::element_type> flatten(const V& view);

template <class T>
void pack(buffer_view<T> from, std::remove_const_t<T>* out) {
  if (from.contiguous()) {
    std::copy_n(from.data, from.count, out);
    return;
  }
  for (std::size_t done = 0; done < from.count; done += from.block) {
    out = std::copy_n(from.data, from.block, out);
    from.data += from.stride;
  }
}

template <class T>
  requires(!std::is_const_v<T>)
void unpack(const T* in, buffer_view<T> to) {
  if (to.contiguous()) {
    std::copy_n(in, to.count, to.data);
    return;
  }
  for (std::size_t done = 0; done < to.count; done += to.block) {
    std::copy_n(in, to.block, to.data);
    in += to.block;
    to.data += to.stride;
  }
}

// 1. Leave out dimensions of one element, 2. order the rest by stride, 3. merge neighbours that
// continue each other. What is left must be one dimension, or rows of adjacent elements.
template <mdspan_like V>
constexpr buffer_view<typename V::element_type> flatten(const V& view) {
  struct dimension {
    std::size_t extent;
    std::ptrdiff_t stride;
  };
  std::array<dimension, V::rank()> dimensions{};
  std::size_t used = 0;
  std::size_t count = 1;
  for (std::size_t i = 0; i < V::rank(); ++i) {
    const auto extent = static_cast<std::size_t>(view.extent(i));
    count *= extent;
    if (extent == 1) continue;
    // By insertion: g++ 12 takes std::sort of so few for an access out of bounds and warns.
    const auto stride = static_cast<std::ptrdiff_t>(view.stride(i));
    std::size_t at = used++;
    for (; at != 0 && stride < dimensions[at - 1].stride; --at) dimensions[at] = dimensions[at - 1];
    dimensions[at] = {extent, stride};
  }
  if (count == 0 || used == 0) {
    return contiguous_view(view.data_handle(), count);
  }
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
    return unit ? contiguous_view(view.data_handle(), count)
                : buffer_view<typename V::element_type>{view.data_handle(), count, 1,
                                                        dimensions[0].stride};
  }
  if (last > 1 || !unit) {
    throw error(errc::not_supported, "this multidimensional view needs more than one stride");
  }
  return {view.data_handle(), count, dimensions[0].extent, dimensions[1].stride};
}

}  // namespace cohort
