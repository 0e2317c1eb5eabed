// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What is done to elements whose type is not known where it is done: they are scaled,
/// divided, filled in. One set for packs on the host, for those of devices that have no kernels,
/// and for what MPI reduces of them.

#include <cohort/core/adasum.hpp>
#include <cohort/core/element.hpp>
#include <cohort/core/kinds.hpp>
#include <cohort/core/reduction.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/op.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace cohort::mpi {

/// The number of a type without a name.
inline constexpr std::uint8_t unnamed_element = 255;

/// Functions for the elements of one type. Null where the type has no such thing.
struct element_kernels {
  std::size_t size;
  std::uint8_t element;                 ///< element_type, or unnamed_element
  MPI_Datatype (*type)();               ///< to reduce with
  MPI_Op (*operation)(reduction_code);  ///< null operation where MPI has none
  /// Writes n neutral elements of a reduction.
  void (*fill)(void* out, std::size_t n, reduction_code code);
  /// out = in × factor; out may be in. Floating point only.
  void (*scale)(void* out, const void* in, std::size_t n, double factor);
  /// out = in ÷ divisor; out may be in. Integers truncate toward zero.
  void (*divide)(void* out, const void* in, std::size_t n, std::int64_t divisor);
  /// out = op::adasum of a and b, see adasum_of; out may be one of them.
  void (*adasum)(void* out, const void* a, const void* b, std::size_t n);
};

/// Functions between elements in the memory of the caller and those that travel in their place.
struct wire_kernels {
  std::size_t size;      ///< of an element of the caller
  element_type element;  ///< of the caller
  /// out = in × factor, rounded.
  void (*pack)(void* out, const void* in, std::size_t n, double factor);
  /// out = in × factor ÷ divisor.
  void (*unpack)(void* out, const void* in, std::size_t n, double factor, std::int64_t divisor);
};

namespace detail {

template <class T>
concept real_number = std::floating_point<T> || std::same_as<T, f16> || std::same_as<T, bf16>;
template <class T>
concept complex_number = cohort::detail::complex_like<T>;

template <class T>
struct arithmetic {
  using type = T;
};
template <class T>
  requires(sizeof(T) == 2 && real_number<T>)
struct arithmetic<T> {
  using type = float;
};

/// The neutral element, value by value; zero where a reduction has none.
template <class T>
T neutral(reduction_code code) {
  const bool one = code == reduction_code::product || code == reduction_code::logical_and;
  if constexpr (std::same_as<T, std::byte>) {
    return code == reduction_code::bit_and ? std::byte{0xff} : std::byte{0};
  } else if constexpr (std::same_as<T, bool>) {
    return one;
  } else if constexpr (complex_number<T>) {
    return T(one ? 1 : 0);
  } else if constexpr (real_number<T>) {
    using real = typename arithmetic<T>::type;
    constexpr real infinity = std::numeric_limits<real>::infinity();
    if (code == reduction_code::min) return static_cast<T>(infinity);
    if (code == reduction_code::max) return static_cast<T>(-infinity);
    return static_cast<T>(static_cast<real>(one ? 1 : 0));
  } else {
    if (code == reduction_code::min) return std::numeric_limits<T>::max();
    if (code == reduction_code::max) return std::numeric_limits<T>::lowest();
    if (code == reduction_code::bit_and) return static_cast<T>(~T{});
    return static_cast<T>(one ? 1 : 0);
  }
}

template <class T>
void fill_neutral(void* out, std::size_t n, reduction_code code) {
  const T value = neutral<T>(code);
  T* to = static_cast<T*>(out);
  for (std::size_t i = 0; i < n; ++i) to[i] = value;
}

template <class T>
void scale(void* out, const void* in, std::size_t n, double factor) {
  using real = typename arithmetic<T>::type;
  T* to = static_cast<T*>(out);
  const T* from = static_cast<const T*>(in);
  if constexpr (complex_number<T>) {
    const auto by = static_cast<typename T::value_type>(factor);
    for (std::size_t i = 0; i < n; ++i) to[i] = from[i] * by;
  } else {
    const auto by = static_cast<real>(factor);
    for (std::size_t i = 0; i < n; ++i) {
      to[i] = static_cast<T>(static_cast<real>(from[i]) * by);
    }
  }
}

template <class T>
void divide(void* out, const void* in, std::size_t n, std::int64_t divisor) {
  T* to = static_cast<T*>(out);
  const T* from = static_cast<const T*>(in);
  if constexpr (complex_number<T>) {
    const auto by = static_cast<typename T::value_type>(divisor);
    for (std::size_t i = 0; i < n; ++i) to[i] = from[i] / by;
  } else if constexpr (real_number<T>) {
    using real = typename arithmetic<T>::type;
    const auto by = static_cast<real>(divisor);
    for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<T>(static_cast<real>(from[i]) / by);
  } else {
    // In 64 bits, for the number of ranks may be more than T can hold.
    using wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    const auto by = static_cast<wide>(divisor);
    for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<T>(static_cast<wide>(from[i]) / by);
  }
}

template <class T>
void adasum(void* out, const void* a, const void* b, std::size_t n) {
  adasum_of(static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b), n);
}

/// MPI's operation for a number that every rank knows.
template <class T>
MPI_Op operation_of(reduction_code code) {
  const auto get = [](auto op) -> MPI_Op {
    using operation = decltype(op);
    if constexpr (reduction_for<operation, T>) {
      return op_of<operation, T>();
    } else {
      return MPI_OP_NULL;
    }
  };
  switch (code) {
    case reduction_code::sum:
    case reduction_code::average:
      return get(op::sum_t{});
    case reduction_code::product:
      return get(op::product_t{});
    case reduction_code::min:
      return get(op::min_t{});
    case reduction_code::max:
      return get(op::max_t{});
    case reduction_code::logical_and:
      return get(op::logical_and_t{});
    case reduction_code::logical_or:
      return get(op::logical_or_t{});
    case reduction_code::logical_xor:
      return get(op::logical_xor_t{});
    case reduction_code::bit_and:
      return get(op::bit_and_t{});
    case reduction_code::bit_or:
      return get(op::bit_or_t{});
    case reduction_code::bit_xor:
      return get(op::bit_xor_t{});
    default:
      return MPI_OP_NULL;
  }
}

template <class T>
constexpr element_kernels make_kernels() {
  element_kernels all{};
  all.size = sizeof(T);
  all.element = unnamed_element;
  all.type = [] { return reduction_type_of<T>(); };
  if constexpr (named_element<T>) {
    all.element = static_cast<std::uint8_t>(element_type_of<T>);
    all.operation = &operation_of<T>;
  }
  if constexpr (named_element<T> && (real_number<T> || complex_number<T> || std::integral<T> ||
                                     std::same_as<T, std::byte>)) {
    all.fill = &fill_neutral<T>;
    if constexpr (real_number<T> || complex_number<T>) all.scale = &scale<T>;
    if constexpr (!std::same_as<T, std::byte> && !std::same_as<T, bool>) all.divide = &divide<T>;
    if constexpr (reduction_for<op::adasum_t, T>) all.adasum = &adasum<T>;
  }
  return all;
}

}  // namespace detail

/// Of an element type that this program names.
template <element T>
inline constexpr element_kernels kernels_of = detail::make_kernels<detail::resolved_t<T>>();

namespace detail {

/// A complex number without <complex>, which brings in the streams: for ranks that have joined and
/// fill in neutral elements.
template <class T>
struct complex_pair {
  using value_type = T;
  complex_pair() = default;
  explicit complex_pair(int real_part) : parts{static_cast<T>(real_part), 0} {}
  [[nodiscard]] T real() const { return parts[0]; }
  [[nodiscard]] T imag() const { return parts[1]; }
  friend complex_pair operator*(complex_pair a, T by) {
    a.parts[0] *= by;
    a.parts[1] *= by;
    return a;
  }
  friend complex_pair operator/(complex_pair a, T by) {
    a.parts[0] /= by;
    a.parts[1] /= by;
    return a;
  }
  friend complex_pair operator+(complex_pair a, complex_pair b) {
    a.parts[0] += b.parts[0];
    a.parts[1] += b.parts[1];
    return a;
  }
  T parts[2];
};

}  // namespace detail

/// Of a type that another rank has named; null for types without a name.
[[nodiscard]] inline const element_kernels* kernels_for(std::uint8_t element) {
  switch (static_cast<element_type>(element)) {
    case element_type::int8:
      return &kernels_of<std::int8_t>;
    case element_type::int16:
      return &kernels_of<std::int16_t>;
    case element_type::int32:
      return &kernels_of<std::int32_t>;
    case element_type::int64:
      return &kernels_of<std::int64_t>;
    case element_type::uint8:
      return &kernels_of<std::uint8_t>;
    case element_type::uint16:
      return &kernels_of<std::uint16_t>;
    case element_type::uint32:
      return &kernels_of<std::uint32_t>;
    case element_type::uint64:
      return &kernels_of<std::uint64_t>;
    case element_type::float16:
      return &kernels_of<f16>;
    case element_type::bfloat16:
      return &kernels_of<bf16>;
    case element_type::float32:
      return &kernels_of<float>;
    case element_type::float64:
      return &kernels_of<double>;
    case element_type::long_double:
      return &kernels_of<long double>;
    case element_type::complex64:
      return &kernels_of<detail::complex_pair<float>>;
    case element_type::complex128:
      return &kernels_of<detail::complex_pair<double>>;
    case element_type::complex_long_double:
      return &kernels_of<detail::complex_pair<long double>>;
    case element_type::boolean:
      return &kernels_of<bool>;
    case element_type::byte:
      return &kernels_of<std::byte>;
  }
  return nullptr;
}

}  // namespace cohort::mpi
