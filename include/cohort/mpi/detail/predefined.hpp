// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Which elements have a datatype that MPI predefines, and which one.

#include <cohort/core/element.hpp>
#include <cohort/mpi/native.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace cohort::mpi::detail {

template <class T>
struct resolve {
  using type = T;
};
template <class T>
  requires(cohort::detail::has_representation<T> &&
           !std::same_as<typename element_traits<T>::as, opaque>)
struct resolve<T> : resolve<typename element_traits<T>::as> {};
template <class T>
  requires(std::is_enum_v<T> && !cohort::detail::has_representation<T> &&
           !std::same_as<T, std::byte>)
struct resolve<T> {
  using type = std::underlying_type_t<T>;
};

/// What an element travels as: its representation, the integer behind an enumeration, or itself.
template <class T>
using resolved_t = typename resolve<T>::type;

template <class T>
inline constexpr bool is_half = std::same_as<T, f16> || std::same_as<T, bf16>;

template <class T>
inline constexpr bool is_mpi_pair = false;
template <>
inline constexpr bool is_mpi_pair<located<float>> = true;
template <>
inline constexpr bool is_mpi_pair<located<double>> = true;
template <>
inline constexpr bool is_mpi_pair<located<long double>> = true;
template <>
inline constexpr bool is_mpi_pair<located<short>> = true;
template <>
inline constexpr bool is_mpi_pair<located<int>> = true;
template <>
inline constexpr bool is_mpi_pair<located<long>> = true;

/// Whether a resolved element has a predefined datatype.
template <class T>
inline constexpr bool is_predefined = (named_element<T> && !is_half<T>) || is_mpi_pair<T>;

/// Signed and unsigned integers by size, for types that C does not know and for reductions.
template <class T>
[[nodiscard]] MPI_Datatype integer_type() {
  if constexpr (sizeof(T) == 1) {
    return std::is_signed_v<T> ? MPI_SIGNED_CHAR : MPI_UNSIGNED_CHAR;
  } else if constexpr (sizeof(T) == 2) {
    return std::is_signed_v<T> ? MPI_INT16_T : MPI_UINT16_T;
  } else if constexpr (sizeof(T) == 4) {
    return std::is_signed_v<T> ? MPI_INT32_T : MPI_UINT32_T;
  } else {
    return std::is_signed_v<T> ? MPI_INT64_T : MPI_UINT64_T;
  }
}

template <class T>
[[nodiscard]] MPI_Datatype pair_type() {
  using value = decltype(T::value);
  if constexpr (std::same_as<value, float>) {
    return MPI_FLOAT_INT;
  } else if constexpr (std::same_as<value, double>) {
    return MPI_DOUBLE_INT;
  } else if constexpr (std::same_as<value, long double>) {
    return MPI_LONG_DOUBLE_INT;
  } else if constexpr (std::same_as<value, short>) {
    return MPI_SHORT_INT;
  } else if constexpr (std::same_as<value, int>) {
    return MPI_2INT;
  } else {
    return MPI_LONG_INT;
  }
}

/// Exactly the type a C program would name, so that raw MPI on the other side matches it.
template <class T>
  requires is_predefined<T>
[[nodiscard]] MPI_Datatype predefined() {
  if constexpr (is_mpi_pair<T>) {
    return pair_type<T>();
  } else if constexpr (std::same_as<T, char>) {
    return MPI_CHAR;
  } else if constexpr (std::same_as<T, wchar_t>) {
    return MPI_WCHAR;
  } else if constexpr (std::same_as<T, short>) {
    return MPI_SHORT;
  } else if constexpr (std::same_as<T, unsigned short>) {
    return MPI_UNSIGNED_SHORT;
  } else if constexpr (std::same_as<T, int>) {
    return MPI_INT;
  } else if constexpr (std::same_as<T, unsigned>) {
    return MPI_UNSIGNED;
  } else if constexpr (std::same_as<T, long>) {
    return MPI_LONG;
  } else if constexpr (std::same_as<T, unsigned long>) {
    return MPI_UNSIGNED_LONG;
  } else if constexpr (std::same_as<T, long long>) {
    return MPI_LONG_LONG;
  } else if constexpr (std::same_as<T, unsigned long long>) {
    return MPI_UNSIGNED_LONG_LONG;
  } else if constexpr (std::same_as<T, float>) {
    return MPI_FLOAT;
  } else if constexpr (std::same_as<T, double>) {
    return MPI_DOUBLE;
  } else if constexpr (std::same_as<T, long double>) {
    return MPI_LONG_DOUBLE;
  } else if constexpr (std::same_as<T, bool>) {
    static_assert(sizeof(bool) == 1, "MPI_C_BOOL is the bool of C, which has 1 byte");
    return MPI_C_BOOL;
  } else if constexpr (std::same_as<T, std::byte>) {
    return MPI_BYTE;
  } else if constexpr (element_type_of<T> == element_type::complex64) {
    return MPI_C_FLOAT_COMPLEX;
  } else if constexpr (element_type_of<T> == element_type::complex128) {
    return MPI_C_DOUBLE_COMPLEX;
  } else if constexpr (element_type_of<T> == element_type::complex_long_double) {
    return MPI_C_LONG_DOUBLE_COMPLEX;
  } else {
    return integer_type<T>();
  }
}

}  // namespace cohort::mpi::detail
