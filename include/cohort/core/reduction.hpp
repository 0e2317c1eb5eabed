// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The reduction operations, which elements each is defined for, and user reductions.

#include <cohort/core/buffer.hpp>
#include <cohort/core/element.hpp>
#include <cohort/core/kinds.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace cohort {

namespace detail {

enum class element_class { none, integer, floating, complex, logical, byte };

/// The class of types in MPI's sense that decides which operations exist.
template <class T>
consteval element_class class_of();

template <class T>
inline constexpr bool is_integer = class_of<T>() == element_class::integer;
template <class T>
inline constexpr bool is_floating = class_of<T>() == element_class::floating;
template <class T>
inline constexpr bool is_ordered = is_integer<T> || is_floating<T>;
template <class T>
inline constexpr bool is_number = is_ordered<T> || class_of<T>() == element_class::complex;
template <class T>
inline constexpr bool is_truth = is_integer<T> || class_of<T>() == element_class::logical;
template <class T>
inline constexpr bool is_bits = is_integer<T> || class_of<T>() == element_class::byte;
template <class T>
inline constexpr bool is_ordered_pair = false;
template <class T>
inline constexpr bool is_ordered_pair<located<T>> = is_ordered<T>;

/// What sums and products are calculated in. Integers wrap around, as MPI's do in practice; signed
/// overflow would be undefined.
template <class T>
using calculated = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;

// Which elements an operation is defined for.
struct of_numbers {
  template <class T>
  static constexpr bool accepts = is_number<T>;
};
struct of_floating {
  template <class T>
  static constexpr bool accepts = is_floating<T>;
};
struct of_double_at_most {
  template <class T>
  static constexpr bool accepts = [] {
    if constexpr (is_floating<T>) return element_type_of<T> != element_type::long_double;
    return false;
  }();
};
struct of_ordered {
  template <class T>
  static constexpr bool accepts = is_ordered<T>;
};
struct of_truths {
  template <class T>
  static constexpr bool accepts = is_truth<T>;
};
struct of_bits {
  template <class T>
  static constexpr bool accepts = is_bits<T>;
};
struct of_pairs {
  template <class T>
  static constexpr bool accepts = is_ordered_pair<T>;
};

/// What an operation is besides its arithmetic.
template <reduction_code Code, class Elements>
struct reduces : Elements {
  static constexpr reduction_code code = Code;
  static constexpr std::string_view name = reduction_names[static_cast<std::size_t>(Code)];
};

}  // namespace detail

/// The operations, as objects to pass: op::sum, op::max, …. Each type says by `accepts<T>` which
/// elements it is defined for, and combines two values on this process by combine().
namespace op {

struct sum_t : detail::reduces<reduction_code::sum, detail::of_numbers> {
  template <class T>
  static constexpr T combine(T a, T b) {
    using as = detail::calculated<T>;
    return static_cast<T>(static_cast<as>(a) + static_cast<as>(b));
  }
};

/// The sum divided by the number of ranks; the division happens after completion.
struct average_t : detail::reduces<reduction_code::average, detail::of_floating> {
  template <class T>
  static constexpr T combine(T a, T b) {
    return sum_t::combine(a, b);
  }
};

struct product_t : detail::reduces<reduction_code::product, detail::of_numbers> {
  template <class T>
  static constexpr T combine(T a, T b) {
    using as = detail::calculated<T>;
    return static_cast<T>(static_cast<as>(a) * static_cast<as>(b));
  }
};

struct min_t : detail::reduces<reduction_code::min, detail::of_ordered> {
  template <class T>
  static constexpr T combine(T a, T b) {
    return b < a ? b : a;
  }
};

struct max_t : detail::reduces<reduction_code::max, detail::of_ordered> {
  template <class T>
  static constexpr T combine(T a, T b) {
    return a < b ? b : a;
  }
};

struct logical_and_t : detail::reduces<reduction_code::logical_and, detail::of_truths> {
  template <class T>
  static constexpr T combine(T a, T b) {
    return static_cast<T>(static_cast<bool>(a) && static_cast<bool>(b));
  }
};

struct logical_or_t : detail::reduces<reduction_code::logical_or, detail::of_truths> {
  template <class T>
  static constexpr T combine(T a, T b) {
    return static_cast<T>(static_cast<bool>(a) || static_cast<bool>(b));
  }
};

struct logical_xor_t : detail::reduces<reduction_code::logical_xor, detail::of_truths> {
  template <class T>
  static constexpr T combine(T a, T b) {
    return static_cast<T>(static_cast<bool>(a) != static_cast<bool>(b));
  }
};

struct bit_and_t : detail::reduces<reduction_code::bit_and, detail::of_bits> {
  template <class T>
  static constexpr T combine(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct bit_or_t : detail::reduces<reduction_code::bit_or, detail::of_bits> {
  template <class T>
  static constexpr T combine(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct bit_xor_t : detail::reduces<reduction_code::bit_xor, detail::of_bits> {
  template <class T>
  static constexpr T combine(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

/// The smallest value and its location; equal values give the smaller location.
struct min_loc_t : detail::reduces<reduction_code::min_loc, detail::of_pairs> {
  template <class T>
  static constexpr T combine(T a, T b) {
    return b.value < a.value || (!(a.value < b.value) && b.location < a.location) ? b : a;
  }
};

/// The largest value and its location; equal values give the smaller location.
struct max_loc_t : detail::reduces<reduction_code::max_loc, detail::of_pairs> {
  template <class T>
  static constexpr T combine(T a, T b) {
    return a.value < b.value || (!(b.value < a.value) && b.location < a.location) ? b : a;
  }
};

/// The adaptive sum of the ranks' vectors, for gradients of large batches: the sum where they are
/// orthogonal, the average where they are parallel, and in between by the angle. For all_reduce and
/// its named, grouped and persistent forms alone, on any number of ranks, of float, double, f16 and
/// bf16 on the host. A vector is the buffer of one call; in a pack or a bundle each tensor is one.
/// See core/adasum.hpp for the formula, its arithmetic, and the tree of the ranks.
struct adasum_t : detail::reduces<reduction_code::adasum, detail::of_double_at_most> {};

inline constexpr sum_t sum{};
inline constexpr average_t average{};
inline constexpr product_t product{};
inline constexpr min_t min{};
inline constexpr max_t max{};
inline constexpr logical_and_t logical_and{};
inline constexpr logical_or_t logical_or{};
inline constexpr logical_xor_t logical_xor{};
inline constexpr bit_and_t bit_and{};
inline constexpr bit_or_t bit_or{};
inline constexpr bit_xor_t bit_xor{};
inline constexpr min_loc_t min_loc{};
inline constexpr max_loc_t max_loc{};
inline constexpr adasum_t adasum{};

}  // namespace op

/// Says whether a user reduction may be applied in any order of the ranks. It must be associative
/// in both cases.
struct commutative_t {};
struct non_commutative_t {};
inline constexpr commutative_t commutative{};
inline constexpr non_commutative_t non_commutative{};

/// A reduction by a callable of your own, `T(T, T)`: the left argument comes from the lower ranks.
/// It must not throw. MPI hands no context to such a function, so the callable must be stateless.
/// \code
/// cohort::user_op{[](double a, double b) { return a + b - a * b; }, cohort::commutative}
/// \endcode
template <class F, bool Commutes>
class user_op {
  static_assert(std::is_empty_v<F> && std::default_initializable<F>,
                "a user reduction must be stateless (a lambda without captures, or an empty "
                "function object): MPI passes it no context");

 public:
  using function_type = F;
  static constexpr std::string_view name = "user_op";
  static constexpr bool commutes = Commutes;

  // User-provided: g++ 12 mishandles other temporaries in co_await expressions.
  constexpr user_op(F, commutative_t) noexcept
    requires Commutes
  {}
  constexpr user_op(F, non_commutative_t) noexcept
    requires(!Commutes)
  {}

  template <class T>
  static constexpr bool accepts = element<T> && requires(const F& function, const T& value) {
    { function(value, value) } -> std::convertible_to<T>;
  };
  template <class T>
  static constexpr T combine(const T& a, const T& b) {
    return static_cast<T>(F{}(a, b));
  }
};

template <class F>
user_op(F, commutative_t) -> user_op<F, true>;
template <class F>
user_op(F, non_commutative_t) -> user_op<F, false>;

/// A reduction operation, whatever it is defined for.
template <class Op>
concept reduction = requires { std::remove_cvref_t<Op>::template accepts<int>; };

/// An operation that is defined for the element type. Pairs that MPI leaves undefined, such as the
/// sum of bool, bits of floating point, the smallest complex number or an integer average, are not.
/// Aggregates reduce by a user_op only.
template <class Op, class T>
concept reduction_for = reduction<Op> && element<T> && std::remove_cvref_t<Op>::template accepts<T>;

/// Whether an operation may combine the ranks in any order.
template <reduction Op>
inline constexpr bool commutes = true;
template <class F>
inline constexpr bool commutes<user_op<F, false>> = false;

/// Whether the result of an operation is still to be divided by the number of ranks.
template <class Op>
inline constexpr bool is_average = std::same_as<std::remove_cvref_t<Op>, op::average_t>;

/// Whether an operation combines whole vectors. Only all_reduce has such a one.
template <class Op>
inline constexpr bool is_adasum = std::same_as<std::remove_cvref_t<Op>, op::adasum_t>;

/// An operation that combines element by element, as every verb that reduces can.
template <class Op, class T>
concept elementwise_reduction_for = reduction_for<Op, T> && !is_adasum<Op>;

/// Turns sums over `n` ranks into averages, in place: the second half of op::average.
template <class T>
  requires reduction_for<op::average_t, T>
constexpr void apply_average(buffer_view<T> sums, int n);

template <class T>
consteval detail::element_class detail::class_of() {
  if constexpr (!named_element<T>) {
    return element_class::none;
  } else {
    constexpr element_type type = element_type_of<T>;
    return type <= element_type::uint64                ? element_class::integer
           : type <= element_type::long_double         ? element_class::floating
           : type <= element_type::complex_long_double ? element_class::complex
           : type == element_type::boolean             ? element_class::logical
                                                       : element_class::byte;
  }
}

namespace detail {

// A type that element_traits declares to be a number is divided as that number.
template <class T>
constexpr void divide_run(T* data, std::size_t count, int n) {
  using number = T;
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (std::floating_point<number>) {
      data[i] /= static_cast<number>(n);
    } else if constexpr (has_representation<number>) {
      using as = typename element_traits<number>::as;
      as value = std::bit_cast<as>(data[i]);
      divide_run(&value, 1, n);
      data[i] = std::bit_cast<number>(value);
    } else {
      data[i] = number(static_cast<float>(data[i]) / static_cast<float>(n));
    }
  }
}

}  // namespace detail

template <class T>
  requires reduction_for<op::average_t, T>
constexpr void apply_average(buffer_view<T> sums, int n) {
  if (n == 1) {
    return;
  }
  if (sums.contiguous()) {
    detail::divide_run(sums.data, sums.count, n);
    return;
  }
  for (std::size_t done = 0; done < sums.count; done += sums.block) {
    detail::divide_run(sums.data, sums.block, n);
    sums.data += sums.stride;
  }
}

}  // namespace cohort
