// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a buffer may consist of: the element types, half-precision numbers, and the one
/// customisation point for types of your own.

#include <cohort/core/config.hpp>
#include <cohort/core/half.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cohort {

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
/// number: \code template <> struct cohort::element_traits<metres> { using as = double; }; template
/// <> struct cohort::element_traits<stamp> { using as = cohort::opaque; }; \endcode `as` has the
/// size and layout of the type: a named element, a std::array of one, or opaque.
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
