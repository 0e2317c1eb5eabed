// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Lets verbs take matrices, vectors and arrays of Eigen 3.3 or newer, and what refers into
/// them. Needs Eigen, which the program has to find.

#include <cohort/core/buffer.hpp>
#include <cohort/core/flatten.hpp>

#include <Eigen/Core>

#include <array>
#include <cstddef>
#include <span>  // also brings the range concepts
#include <type_traits>

namespace cohort {
namespace adapters {

/// The class `D` of which an object is a `DenseBase<D>`; void if it is none.
template <class D>
D dense_type(const volatile Eigen::DenseBase<D>*);
void dense_type(const volatile void*);
/// The same for what has memory of its own: Matrix and Array.
template <class D>
D plain_type(const volatile Eigen::PlainObjectBase<D>*);
void plain_type(const volatile void*);

template <class M>
using dense_type_t = decltype(dense_type(static_cast<M*>(nullptr)));
template <class M>
inline constexpr bool is_plain = !std::is_void_v<decltype(plain_type(static_cast<M*>(nullptr)))>;

/// A `Ref` to what is const keeps a copy of an expression, if that is what it was made of.
template <class M>
inline constexpr bool may_keep_copy = false;
template <class M, int Options, class Stride>
inline constexpr bool may_keep_copy<Eigen::Ref<const M, Options, Stride>> = true;

/// Dense and with memory: no sum of two matrices, which is computed where it is assigned.
template <class M>
concept in_memory = std::is_class_v<M> && !std::is_void_v<dense_type_t<M>> &&
                    (dense_type_t<M>::Flags & Eigen::DirectAccessBit) != 0;

/// Coefficients and nothing else.
template <class M>
concept fixed_size = in_memory<M> && is_plain<M> && (M::SizeAtCompileTime > 0) &&
                     (sizeof(M) == M::SizeAtCompileTime * sizeof(typename M::Scalar));

/// Of matrices of fixed size, which it owns if its constness is deep.
template <class R>
concept range_of_fixed =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    fixed_size<std::ranges::range_value_t<R>> &&
    (std::ranges::borrowed_range<R> ||
     std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<const R>>>);

}  // namespace adapters

/// Matrix, Vector and Array own their elements: an rvalue is moved into the operation and comes
/// back. Map, Ref, blocks, rows, columns, transposes and the like refer to elements of others, and
/// an rvalue will do: `all_reduce(world, m.col(1), op::sum)`. A `Ref` to what is const may hold a
/// copy, so it must be a lvalue. Expressions with no memory are not buffers: evaluate them first.
///
/// Elements travel in the order of their addresses, by columns unless the class is row-major: all
/// ranks should use the same order. What needs two strides, a Map with an inner and an outer one,
/// is errc::not_supported.
///
///     Eigen::MatrixXd m = Eigen::MatrixXd::Random(20, 30);
///     co_await cohort::all_reduce(world, m, cohort::op::sum);
///     co_await cohort::broadcast(world, m.row(4), 0);
///     auto [v, st] = co_await cohort::recv<Eigen::VectorXd>(world, source, tag);
template <adapters::in_memory M>
struct buffer_traits<M> {
  static constexpr bool owns = adapters::is_plain<M> || adapters::may_keep_copy<M>;
  [[nodiscard]] static auto view(auto& m) noexcept(adapters::is_plain<M>) {
    if constexpr (adapters::is_plain<M>) {
      return contiguous_view(m.data(), static_cast<std::size_t>(m.size()));
    } else {
      const std::array<std::size_t, 2> extents{static_cast<std::size_t>(m.rows()),
                                               static_cast<std::size_t>(m.cols())};
      const std::array<std::ptrdiff_t, 2> strides{m.rowStride(), m.colStride()};
      return flatten(m.data(), extents, strides);
    }
  }
};

/// Ranges of matrices of fixed size, `std::vector<Eigen::Vector3d>` and spans of them, are buffers
/// of the coefficients.
template <adapters::range_of_fixed R>
struct buffer_traits<R> {
  static constexpr bool owns = !std::ranges::borrowed_range<R>;
  [[nodiscard]] static auto view(auto& range) noexcept {
    using matrix = std::ranges::range_value_t<R>;
    using scalar = std::remove_pointer_t<decltype(std::ranges::data(range)->data())>;
    return contiguous_view(reinterpret_cast<scalar*>(std::ranges::data(range)),
                           std::ranges::size(range) * matrix::SizeAtCompileTime);
  }
};

}  // namespace cohort
