// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What the reducing collectives share: packing, parts, averaging, and the words for a wrong call.

#include <cohort/collectives/detail/packed.hpp>
#include <cohort/collectives/detail/wrong_call.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/core/buffer.hpp>
#include <cohort/core/reduction.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/op.hpp>
#include <cohort/mpi/post.hpp>

#include <algorithm>
#include <array>
#include <tuple>
#include <type_traits>

namespace cohort::collectives::detail {

/// Whether one call of MPI can take so many elements of a reduction.
template <class Op>
inline constexpr bool has_large_reductions = mpi::has_large_counts && !requires {
  typename Op::function_type;
};

/// Whether the host computes too: it divides for an average, and calls functions of the user.
template <class Op>
inline constexpr bool works_on_host = is_average<Op> || requires {
  typename Op::function_type;
};

/// Calls `post_part(first, count)` for parts that one call can take; stops at the first error.
template <class Op, class PostPart>
int in_parts(std::size_t count, PostPart post_part) {
  if (has_large_reductions<Op> || count <= mpi::max_int_count) [[likely]] {
    return post_part(std::size_t{0}, count);
  }
  for (std::size_t first = 0; first < count; first += mpi::max_int_count) {
    const int rc = post_part(first, std::min(mpi::max_int_count, count - first));
    if (rc != MPI_SUCCESS) return rc;
  }
  return MPI_SUCCESS;
}

/// Values that `checks::cross_rank` compares: count, size of an element, operation, root.
template <class T, class Op>
std::array<std::int64_t, 4> agreed_values(std::size_t count, int root) {
  std::uint64_t hash = 0;
  for (const char c : Op::name) hash = hash * 131 + static_cast<unsigned char>(c);
  return {static_cast<std::int64_t>(count), static_cast<std::int64_t>(sizeof(T)),
          static_cast<std::int64_t>(hash & (~std::uint64_t{0} >> 1U)), root};
}

/// A compile error that says what is wrong with a reducing verb's arguments, buffers first.
template <has_root Rooted, class... Arguments>
consteval void explain_reduction() {
  constexpr bool has_reduction = (reduction<Arguments> || ...);
  static_assert(has_reduction,
                "no reduction given; use cohort::op::sum, cohort::op::max, … or "
                "cohort::user_op{function, cohort::commutative}");
  if constexpr (has_reduction) {
    using first = std::tuple_element_t<0, std::tuple<Arguments&&...>>;
    constexpr bool is_buffer = any_buffer<first>;
    static_assert(is_buffer,
                  "the first argument is no buffer: pass a contiguous range or scalar lvalue, a "
                  "span, a strided view, or a container rvalue (a temporary would dangle)");
    constexpr bool rooted =
        Rooted == has_root::no || (std::integral<std::remove_cvref_t<Arguments>> || ...);
    static_assert(!is_buffer || rooted, "the root is missing: an integer after the reduction");
    static_assert(!is_buffer || !rooted || never<Arguments...>,
                  "this call does not fit: the result needs a writable buffer, both buffers need "
                  "one element type, and the reduction must be defined for it (no sum of bool, no "
                  "bitwise operation on floating point, no min of complex, average of floating "
                  "point only); a completion token comes last");
  }
}

}  // namespace cohort::collectives::detail
