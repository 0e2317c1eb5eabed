// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Which of NCCL's types stands for an element of a buffer, and the reductions that NCCL has: those
/// of cohort, and a sum of scaled contributions.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/element.hpp>
#include <cohort/core/kinds.hpp>
#include <cohort/core/reduction.hpp>
#include <cohort/device/memory.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace cohort::nccl {

/// How a buffer's elements are named to NCCL: `width` of its type for each.
struct element {
  ncclDataType_t type;
  std::size_t width = 1;

  friend bool operator==(const element&, const element&) = default;
};

namespace detail {

inline constexpr int no_type = -1;

/// Of a complex number, that of its parts.
[[nodiscard]] constexpr int type_of(element_type of) noexcept {
  switch (of) {
    case element_type::int8:
      return ncclInt8;
    case element_type::uint8:
      return ncclUint8;
    case element_type::int32:
      return ncclInt32;
    case element_type::uint32:
      return ncclUint32;
    case element_type::int64:
      return ncclInt64;
    case element_type::uint64:
      return ncclUint64;
    case element_type::float16:
      return ncclFloat16;
    case element_type::bfloat16:
      return ncclBfloat16;
    case element_type::float32:
    case element_type::complex64:
      return ncclFloat32;
    case element_type::float64:
    case element_type::complex128:
      return ncclFloat64;
    default:
      return no_type;
  }
}

template <class T>
consteval int number_code() {
  if constexpr (named_element<T> &&
                (std::is_arithmetic_v<T> || std::same_as<T, f16> || std::same_as<T, bf16>)) {
    return type_of(element_type_of<T>);
  } else if constexpr (std::same_as<T, __half>) {
    return ncclFloat16;
  } else if constexpr (std::same_as<T, __nv_bfloat16>) {
    return ncclBfloat16;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 3)
  } else if constexpr (std::same_as<T, __nv_fp8_e4m3>) {
    return ncclFloat8e4m3;
  } else if constexpr (std::same_as<T, __nv_fp8_e5m2>) {
    return ncclFloat8e5m2;
#endif
  } else {
    return no_type;
  }
}

}  // namespace detail

/// Bytes of one of NCCL's numbers.
[[nodiscard]] constexpr std::size_t size_of(ncclDataType_t type) noexcept {
  switch (type) {
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 1;
  }
}

/// NCCL reduces it: signed and unsigned integers of 1, 4 and 8 bytes, float, double, cohort's and
/// CUDA's types of 16 bits, and CUDA's of 8 bits from NCCL 2.24 on.
template <class T>
concept number = detail::number_code<T>() != detail::no_type;

/// A complex number of float or double. It is summed as two of its reals.
template <class T>
concept complex_number = cohort::detail::complex_like<T> && number<typename T::value_type>;

/// What NCCL can move: any trivially copyable type, as bytes.
template <class T>
concept movable = std::is_trivially_copyable_v<T>;

/// As an operand of a reduction.
template <class T>
  requires number<T> || complex_number<T>
constexpr element reduced_as() {
  if constexpr (number<T>) {
    return {static_cast<ncclDataType_t>(detail::number_code<T>())};
  } else {
    return {static_cast<ncclDataType_t>(detail::number_code<typename T::value_type>()), 2};
  }
}

/// As something to be moved.
template <movable T>
constexpr element moved_as() {
  if constexpr (number<T>) {
    return {static_cast<ncclDataType_t>(detail::number_code<T>())};
  } else {
    return {ncclUint8, sizeof(T)};
  }
}

namespace op {

using cohort::op::average;
using cohort::op::max;
using cohort::op::min;
using cohort::op::product;
using cohort::op::sum;

/// The sum of each rank's elements times that rank's `factor`, which is of the element's type. NCCL
/// multiplies before it sums, so the result equals that of a sum and one multiplication within
/// rounding only. Each rank may have a factor of its own.
template <class T>
struct scaled {
  explicit scaled(T by) : factor(by) {}
  T factor;
  static constexpr std::string_view name = "scaled";
};

}  // namespace op

/// An operation as an NCCL call takes it. A scaled one becomes an `ncclRedOp_t` when it is issued.
struct operator_value {
  ncclRedOp_t op = ncclSum;
  bool is_scaled = false;
  std::array<std::byte, 8> factor{};

  friend bool operator==(const operator_value&, const operator_value&) = default;
};

namespace detail {

template <class Op>
inline constexpr bool is_scaled = false;
template <class T>
inline constexpr bool is_scaled<op::scaled<T>> = true;

template <class Op, class T>
consteval bool reduces() {
  if constexpr (is_scaled<Op>) {
    return number<T> && std::same_as<decltype(Op::factor), T>;
  } else if constexpr (requires {
                         requires std::same_as<decltype(Op::code), const reduction_code>;
                       }) {
    return devices_have(Op::code) && (number<T> || (complex_number<T> && is_sum(Op::code)));
  } else {
    return false;
  }
}

/// One that NCCL has.
[[nodiscard]] constexpr ncclRedOp_t native_operation(reduction_code code) noexcept {
  switch (code) {
    case reduction_code::sum:
      return ncclSum;
    case reduction_code::average:
      return ncclAvg;
    case reduction_code::product:
      return ncclProd;
    case reduction_code::min:
      return ncclMin;
    default:
      return ncclMax;
  }
}

}  // namespace detail

/// NCCL has `Op` for elements of type T. Unlike MPI's, the average is there for integers too: the
/// sum divided by the number of ranks, rounded towards zero.
template <class Op, class T>
concept reduction_of = detail::reduces<std::remove_cvref_t<Op>, T>();

template <class T, class Op>
  requires reduction_of<Op, T>
operator_value as_operator(const Op& operation) {
  using kind = std::remove_cvref_t<Op>;
  operator_value made;
  if constexpr (detail::is_scaled<kind>) {
    made.is_scaled = true;
    std::memcpy(made.factor.data(), &operation.factor, sizeof(T));
  } else {
    made.op = detail::native_operation(kind::code);
  }
  return made;
}

}  // namespace cohort::nccl

#endif
