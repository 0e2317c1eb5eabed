// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a buffer may consist of: the element types, the half-precision numbers, and the one
/// customisation point for types of your own.

#include <cohort/core/config.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cohort {

namespace detail {
template <class Half>
[[nodiscard]] constexpr Half half_of(std::uint16_t bits) noexcept {
  Half result{};
  result.bits = bits;
  return result;
}
}  // namespace detail

/// IEEE 754 binary16: 5 exponent bits, 10 mantissa bits. Converts to float exactly; from float by
/// rounding to the nearest, ties to even. Arithmetic happens in float.
struct f16 {
  f16() = default;
  explicit constexpr f16(float value) noexcept : bits(encode(value)) {}
  constexpr operator float() const noexcept { return decode(bits); }  // NOLINT(*-explicit-*)

  [[nodiscard]] static constexpr f16 from_bits(std::uint16_t bits) noexcept {
    return detail::half_of<f16>(bits);
  }

  std::uint16_t bits;

 private:
  [[nodiscard]] static constexpr std::uint16_t encode(float value) noexcept;
  [[nodiscard]] static constexpr float decode(std::uint16_t bits) noexcept;
};

/// bfloat16: the upper half of a float (8 exponent bits, 7 mantissa bits). Converts to float
/// exactly; from float by rounding to the nearest, ties to even. Arithmetic happens in float.
struct bf16 {
  bf16() = default;
  explicit constexpr bf16(float value) noexcept : bits(encode(value)) {}
  constexpr operator float() const noexcept {  // NOLINT(*-explicit-*)
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }

  [[nodiscard]] static constexpr bf16 from_bits(std::uint16_t bits) noexcept {
    return detail::half_of<bf16>(bits);
  }

  std::uint16_t bits;

 private:
  [[nodiscard]] static constexpr std::uint16_t encode(float value) noexcept;
};

static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2);

namespace detail {

/// All bits where a < b; of magnitudes, which have no highest bit.
[[nodiscard]] constexpr std::uint32_t mask_if_less(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(a - b) >> 31);
}

/// Drops the lowest `shift` bits of a magnitude, rounding to the nearest and ties to even.
[[nodiscard]] constexpr std::uint32_t shift_and_round(std::uint32_t magnitude, unsigned shift) {
  const std::uint32_t below_half = (std::uint32_t{1} << (shift - 1)) - 1;
  return (magnitude + below_half + ((magnitude >> shift) & 1U)) >> shift;
}

}  // namespace detail

// The conversions choose by masks: where there are conditions, compilers make branches of them and
// do not vectorise loops.

constexpr std::uint16_t f16::encode(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (word >> 16) & 0x8000U;
  const std::uint32_t magnitude = word & 0x7FFFFFFFU;
  const std::uint32_t is_small = detail::mask_if_less(magnitude, 0x38800000U);
  const std::uint32_t is_large = detail::mask_if_less(0x477FFFFFU, magnitude);
  // Normal: rebias the exponent from 127 to 15; rounding up may carry into the exponent, which is
  // right, up to infinity.
  const std::uint32_t normal = detail::shift_and_round(magnitude - 0x38000000U, 13);
  // Subnormal: the lowest bit of 0.5F is that of the smallest f16, so the addition rounds.
  const float rounded = std::bit_cast<float>(magnitude & is_small) + 0.5F;
  const std::uint32_t small = std::bit_cast<std::uint32_t>(rounded) - 0x3F000000U;
  // 65536 and above, infinity included; every NaN becomes a quiet one.
  const std::uint32_t large = 0x7C00U | (detail::mask_if_less(0x7F800000U, magnitude) & 0x0200U);
  return static_cast<std::uint16_t>(sign | small | (large & is_large) |
                                    (normal & ~(is_small | is_large)));
}

constexpr float f16::decode(std::uint16_t bits) noexcept {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t magnitude = std::uint32_t{bits & 0x7FFFU} << 13;
  // Rebias the exponent. A subnormal gets the leading bit that it lacks, and it is taken off again,
  // exactly.
  const std::uint32_t is_small = detail::mask_if_less(magnitude, 0x00800000U);
  const std::uint32_t rebiased = magnitude + 0x38000000U + (is_small & 0x00800000U);
  const float finite =
      std::bit_cast<float>(rebiased) - std::bit_cast<float>(is_small & 0x38800000U);
  // Infinity and NaN: all bits of the exponent.
  const std::uint32_t above = detail::mask_if_less(0x0F7FFFFFU, magnitude) & 0x7F800000U;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(finite) | above);
}

constexpr std::uint16_t bf16::encode(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t is_nan = detail::mask_if_less(0x7F800000U, word & 0x7FFFFFFFU);
  const std::uint32_t nan = (word >> 16) | 0x0040U;  // keeps a NaN a NaN
  return static_cast<std::uint16_t>((nan & is_nan) | (detail::shift_and_round(word, 16) & ~is_nan));
}

/// The element types that have a name on every rank. Types that differ only in spelling (long and
/// long long, char and signed char) share one.
enum class element_type : std::uint8_t {
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  long_double,
  complex64,
  complex128,
  complex_long_double,
  boolean,
  byte,
};

/// Says "transfer this type as plain bytes" where element_traits names a type.
struct opaque {};

/// The customisation point for types of your own. Trivially copyable aggregates and enumerations
/// need nothing. Specialise it for a class with constructors, or to make a class reduce like a
/// number. `as` has the size and layout of the type: a named element, a std::array of one, or
/// opaque.
///
///     template <>
///     struct cohort::element_traits<metres> { using as = double; };
///     template <>
///     struct cohort::element_traits<stamp> { using as = cohort::opaque; };
template <class T>
struct element_traits {};

/// A value and where it is: what op::min_loc and op::max_loc reduce. The layout is that of MPI's
/// pair types.
template <class T>
struct located {
  T value;
  int location;

  friend constexpr bool operator==(const located&, const located&) = default;
};

namespace detail {

template <class T>
concept has_representation = requires { typename element_traits<T>::as; };

// A structural test for std::complex keeps <complex>, which brings in the streams, out of every
// program that does not use it.
template <class T>
concept complex_like = std::is_class_v<T> && requires(const T& number) {
  typename T::value_type;
  { number.real() } -> std::same_as<typename T::value_type>;
  { number.imag() } -> std::same_as<typename T::value_type>;
} && std::floating_point<typename T::value_type> && sizeof(T) == 2 * sizeof(typename T::value_type);

template <class T>
inline constexpr bool is_std_array = false;
template <class T, std::size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;

template <class T>
inline constexpr bool is_located = false;
template <class T>
inline constexpr bool is_located<located<T>> = true;

template <class T>
concept iterable = requires(T& object) {
  object.begin();
  object.end();
};

constexpr int no_element_code = -1;

template <std::size_t Size>
consteval element_type integer_code(bool is_signed) {
  constexpr int power = Size == 1 ? 0 : Size == 2 ? 1 : Size == 4 ? 2 : 3;
  const auto first = is_signed ? element_type::int8 : element_type::uint8;
  return static_cast<element_type>(static_cast<int>(first) + power);
}

/// The element_type of T as an int, or no_element_code.
template <class T>
consteval int element_code() {
  if constexpr (has_representation<T>) {
    return element_code<typename element_traits<T>::as>();
  } else if constexpr (std::same_as<T, bool>) {
    return static_cast<int>(element_type::boolean);
  } else if constexpr (std::same_as<T, std::byte>) {
    return static_cast<int>(element_type::byte);
  } else if constexpr (std::integral<T> && sizeof(T) <= 8) {
    return static_cast<int>(integer_code<sizeof(T)>(std::is_signed_v<T>));
  } else if constexpr (std::same_as<T, f16>) {
    return static_cast<int>(element_type::float16);
  } else if constexpr (std::same_as<T, bf16>) {
    return static_cast<int>(element_type::bfloat16);
  } else if constexpr (std::same_as<T, float>) {
    return static_cast<int>(element_type::float32);
  } else if constexpr (std::same_as<T, double>) {
    return static_cast<int>(element_type::float64);
  } else if constexpr (std::same_as<T, long double>) {
    return static_cast<int>(element_type::long_double);
  } else if constexpr (complex_like<T>) {
    using part = typename T::value_type;
    return static_cast<int>(std::same_as<part, float>    ? element_type::complex64
                            : std::same_as<part, double> ? element_type::complex128
                                                         : element_type::complex_long_double);
  } else {
    return no_element_code;
  }
}

template <class T>
consteval bool is_element();

}  // namespace detail

/// A type with an element_type: arithmetic types, std::complex, f16, bf16, std::byte, and types
/// that element_traits declares to be one of these.
template <class T>
concept named_element = detail::element_code<T>() != detail::no_element_code;

/// The name of a named element.
template <named_element T>
inline constexpr element_type element_type_of =
    static_cast<element_type>(detail::element_code<T>());

/// What a buffer may consist of: a named element, a std::array of elements, an enumeration, a
/// non-empty trivially copyable aggregate, or a type that element_traits declares. Aggregates
/// travel as bytes, so they must not hold pointers that the receiver would follow.
template <class T>
concept element = detail::is_element<T>();

template <class T>
consteval bool detail::is_element() {
  if constexpr (!std::is_object_v<T> || std::is_const_v<T> || std::is_volatile_v<T>) {
    return false;
  } else if constexpr (has_representation<T>) {
    using as = typename element_traits<T>::as;
    if constexpr (std::same_as<as, opaque>) {
      return true;
    } else {
      return sizeof(as) == sizeof(T) && detail::is_element<as>();
    }
  } else if constexpr (detail::element_code<T>() != no_element_code || std::is_enum_v<T>) {
    return true;
  } else if constexpr (is_std_array<T>) {
    if constexpr (std::tuple_size_v<T> == 0) {
      return false;
    } else {
      return detail::is_element<typename T::value_type>();
    }
  } else if constexpr (std::integral<T> || std::floating_point<T>) {
    return true;  // extended types such as __int128
  } else {
    // Tags are empty and views are ranges: neither is data.
    return std::is_aggregate_v<T> && !std::is_array_v<T> && std::is_trivially_copyable_v<T> &&
           !std::is_empty_v<T> && !iterable<T>;
  }
}

}  // namespace cohort
