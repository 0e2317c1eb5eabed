// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Lets verbs take `Kokkos::View`, of Kokkos 3.4 or newer, whose memory the host can use.
/// Needs Kokkos, which the program has to find.

#include <cohort/core/buffer.hpp>
#include <cohort/core/flatten.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <type_traits>

namespace cohort {

/// Views share their memory, so an rvalue is moved into the operation, which keeps the memory, and
/// comes back: `all_reduce(world, Kokkos::subview(v, Kokkos::ALL, 2), op::sum)`. An unmanaged view
/// keeps nothing; its memory is borrowed. The constness is that of the elements. Managed views of
/// const elements, of more than two dimensions, or of two in LayoutStride must be lvalues.
///
/// Elements travel in the order of their addresses, so all ranks should use the same layout. What
/// needs more than one stride, some subviews do, is errc::not_supported. A view whose memory the
/// host cannot use does not compile: give a verb a `cohort::device::span` of its memory
/// (<cohort/staging.hpp>), or a mirror on the host. Kernels that write to it must be over: call
/// `Kokkos::fence` before.
///
///     Kokkos::View<double**, Kokkos::HostSpace> cells("cells", 20, 30);
///     Kokkos::fence();
///     co_await cohort::all_reduce(world, cells, cohort::op::sum);
template <class V>
  requires Kokkos::is_view<V>::value
struct buffer_traits<V> {
  static constexpr bool owns = !V::memory_traits::is_unmanaged;
  // With a stride of 1, or no other, there is nothing that flatten refuses.
  static constexpr bool has_one_stride =
      V::rank <= 1 ||
      (V::rank == 2 && !std::is_same_v<typename V::array_layout, Kokkos::LayoutStride>);
  [[nodiscard]] static buffer_view<typename V::value_type> view(const V& view) noexcept(
      has_one_stride) {
    static_assert(
        Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename V::memory_space>::accessible,
        "the host cannot use the memory of this view: pass a cohort::device::span of it and "
        "include "
        "<cohort/staging.hpp>, or pass a mirror (Kokkos::create_mirror_view_and_copy)");
    return flatten<static_cast<std::size_t>(V::rank)>(view.data(), view);
  }
};

}  // namespace cohort
