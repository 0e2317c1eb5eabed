// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The reductions that NCCL has: those of cohort, and a sum of scaled contributions.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/reduction.hpp>
#include <cohort/nccl/datatype.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace cohort::nccl {

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
  } else if constexpr (std::same_as<Op, cohort::op::sum_t> ||
                       std::same_as<Op, cohort::op::average_t>) {
    return number<T> || complex_number<T>;
  } else if constexpr (std::same_as<Op, cohort::op::product_t> ||
                       std::same_as<Op, cohort::op::min_t> || std::same_as<Op, cohort::op::max_t>) {
    return number<T>;
  }
  return false;
}

}  // namespace detail

/// NCCL has `Op` for elements of type T. Unlike MPI's, the average is there for integers too: the
/// sum divided by the number of ranks, rounded towards zero.
template <class Op, class T>
concept reduction_of = detail::reduces<std::remove_cvref_t<Op>, T>();

template <class T, class Op>
requires reduction_of<Op, T> operator_value as_operator(const Op& operation) {
  using kind = std::remove_cvref_t<Op>;
  operator_value made;
  if constexpr (detail::is_scaled<kind>) {
    made.is_scaled = true;
    std::memcpy(made.factor.data(), &operation.factor, sizeof(T));
  } else if constexpr (std::same_as<kind, cohort::op::average_t>) {
    made.op = ncclAvg;
  } else if constexpr (std::same_as<kind, cohort::op::product_t>) {
    made.op = ncclProd;
  } else if constexpr (std::same_as<kind, cohort::op::min_t>) {
    made.op = ncclMin;
  } else if constexpr (std::same_as<kind, cohort::op::max_t>) {
    made.op = ncclMax;
  }
  return made;
}

}  // namespace cohort::nccl

#endif
