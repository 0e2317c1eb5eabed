// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Which of NCCL's types stands for an element of a buffer.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/element.hpp>
#include <cohort/device/cuda_types.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace cohort::nccl {

/// How a buffer's elements are named to NCCL: `width` of its type for each.
struct element {
  ncclDataType_t type;
  std::size_t width = 1;
};

namespace detail {

inline constexpr int no_type = -1;

template <class T>
consteval int number_code() {
  if constexpr (std::same_as<T, bool>) {
    return no_type;
  } else if constexpr (std::integral<T>) {
    switch (sizeof(T)) {
      case 1:
        return std::is_signed_v<T> ? ncclInt8 : ncclUint8;
      case 4:
        return std::is_signed_v<T> ? ncclInt32 : ncclUint32;
      case 8:
        return std::is_signed_v<T> ? ncclInt64 : ncclUint64;
      default:
        return no_type;
    }
  } else if constexpr (std::same_as<T, float>) {
    return ncclFloat32;
  } else if constexpr (std::same_as<T, double>) {
    return ncclFloat64;
  } else if constexpr (std::same_as<T, f16> || std::same_as<T, __half>) {
    return ncclFloat16;
  } else if constexpr (std::same_as<T, bf16> || std::same_as<T, __nv_bfloat16>) {
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

/// NCCL reduces it: signed and unsigned integers of 1, 4 and 8 bytes, float, double, cohort's and
/// CUDA's types of 16 bits, and CUDA's of 8 bits from NCCL 2.24 on.
template <class T>
concept number = detail::number_code<T>()
!= detail::no_type;

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

}  // namespace cohort::nccl

#endif
