// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Lets verbs take `std::mdspan`, its reference implementation by Kokkos, and classes that
/// look like them. It includes none of these.

#include <cohort/core/buffer.hpp>
#include <cohort/core/flatten.hpp>

#include <concepts>
#include <cstddef>

namespace cohort {

/// A multidimensional view in the manner of std::mdspan over plain memory, whose accessor gives
/// references to the elements, with extents and strides (`layout_left`, `layout_right`,
/// `layout_stride` and others that have strides).
template <class V>
concept mdspan_like = requires(const V& view) {
  requires std::same_as<typename V::reference, typename V::element_type&>;
  { view.data_handle() } -> std::convertible_to<typename V::element_type*>;
  { V::rank() } -> std::convertible_to<std::size_t>;
  view.extent(0);
  view.stride(0);
} && (V::rank() >= 1);

/// A view, so an rvalue will do. Its constness is that of the elements, as in std::span. Throws
/// errc::not_supported as `flatten` does, which also tells the order of the elements.
///
///     std::mdspan grid(cells.data(), 20, 30);
///     co_await cohort::all_reduce(world, grid, cohort::op::sum);
///     co_await cohort::broadcast(world, std::submdspan(grid, 2, std::full_extent), 0);
template <mdspan_like V>
struct buffer_traits<V> {
  static constexpr bool owns = false;
  [[nodiscard]] static constexpr buffer_view<typename V::element_type> view(const V& view) {
    typename V::element_type* const data = view.data_handle();
    return flatten<V::rank()>(data, view);
  }
};

}  // namespace cohort
