// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The MPI datatype of an element type: predefined where MPI has one, otherwise derived once
/// per process and freed when MPI is finalized.

#include <cohort/core/element.hpp>
#include <cohort/core/short_lock.hpp>
#include <cohort/mpi/at_finalize.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

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

namespace cohort::mpi {

namespace detail {

template <class T>
consteval std::size_t wire_size_of() {
  if constexpr (is_mpi_pair<T>) {
    return sizeof(T::value) + sizeof(int);
  } else if constexpr (cohort::detail::is_std_array<T>) {
    return std::tuple_size_v<T> * wire_size_of<resolved_t<typename T::value_type>>();
  } else {
    return sizeof(T);
  }
}

}  // namespace detail

/// The datatype of an element. A constant for the types that MPI predefines; one load for the
/// others after the first call, which needs MPI to be running. The library owns the type.
///
/// Aggregates and half-precision numbers are blocks of bytes, so all ranks must have one
/// representation of data: heterogeneous systems are out of scope.
template <element T>
[[nodiscard]] MPI_Datatype datatype_of();

/// The datatype to reduce an element with. Differs from datatype_of() where MPI allows a type to be
/// sent but not reduced: char reduces as signed or unsigned char, whichever it is here, and wchar_t
/// as the integer of its size.
template <element T>
[[nodiscard]] MPI_Datatype reduction_type_of();

/// The bytes that MPI counts for one element; less than sizeof(T) where the type has a gap that is
/// not sent, as in located<double>.
template <element T>
inline constexpr std::size_t wire_size = detail::wire_size_of<detail::resolved_t<T>>();

/// Owns a committed datatype. Freeing is local and allowed while operations still use the type.
class datatype {
 public:
  datatype() noexcept = default;
  /// Takes over a type that is not predefined, and commits it. Throws what MPI reports, after
  /// freeing.
  explicit datatype(MPI_Datatype owned);
  datatype(datatype&& other) noexcept : type_(other.release()) {}
  datatype& operator=(datatype&& other) noexcept;
  ~datatype() { reset(); }

  [[nodiscard]] MPI_Datatype native() const noexcept { return type_; }
  [[nodiscard]] explicit operator bool() const noexcept { return type_ != MPI_DATATYPE_NULL; }
  /// Gives up ownership.
  [[nodiscard]] MPI_Datatype release() noexcept { return std::exchange(type_, MPI_DATATYPE_NULL); }
  void reset() noexcept;

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// \`n\` adjacent copies of a type. 64-bit count with every MPI library.
[[nodiscard]] datatype contiguous_type(std::size_t n, MPI_Datatype base);

/// \`count\` blocks of \`block\` adjacent elements, whose starts are \`stride\` elements apart. A
/// stride of 0 is allowed where the type is only read. 64-bit counts with every MPI library.
[[nodiscard]] datatype strided_type(std::size_t block, std::ptrdiff_t stride, std::size_t count,
                                    MPI_Datatype base);

inline datatype::datatype(MPI_Datatype owned) : type_(owned) {
  const int result = MPI_Type_commit(&type_);
  if (result != MPI_SUCCESS) {
    reset();
    check(result, "MPI_Type_commit");
  }
}

inline datatype& datatype::operator=(datatype&& other) noexcept {
  if (this != &other) {
    reset();
    type_ = other.release();
  }
  return *this;
}

inline void datatype::reset() noexcept {
  if (type_ != MPI_DATATYPE_NULL && running()) {
    const lock calls;
    MPI_Type_free(&type_);
  }
  type_ = MPI_DATATYPE_NULL;
}

namespace detail {

// `n` copies of `base`, whose starts are `stride` bytes apart. MPI 3.1 counts with int, so large
// counts become full chunks, a repetition of chunks, and a rest.
inline MPI_Datatype repeat(std::size_t n, MPI_Aint stride, MPI_Datatype base) {
  MPI_Datatype result = MPI_DATATYPE_NULL;
#if MPI_VERSION >= 4
  check(MPI_Type_create_hvector_c(static_cast<MPI_Count>(n), 1, stride, base, &result),
        "MPI_Type_create_hvector_c");
#else
  constexpr std::size_t chunk = std::size_t{1} << 30;
  if (n <= chunk) {
    check(MPI_Type_create_hvector(static_cast<int>(n), 1, stride, base, &result),
          "MPI_Type_create_hvector");
    return result;
  }
  // An owner per step, so that a failure frees what exists. MPI keeps what a type is built from.
  const auto chunk_stride = static_cast<MPI_Aint>(chunk) * stride;
  const datatype full(repeat(chunk, stride, base));
  const datatype body(repeat(n / chunk, chunk_stride, full.native()));
  const datatype rest(repeat(n % chunk, stride, base));
  const int lengths[] = {1, n % chunk != 0 ? 1 : 0};
  const MPI_Aint starts[] = {0, static_cast<MPI_Aint>(n / chunk) * chunk_stride};
  const MPI_Datatype types[] = {body.native(), rest.native()};
  check(MPI_Type_create_struct(2, lengths, starts, types, &result), "MPI_Type_create_struct");
#endif
  return result;
}

inline MPI_Aint extent_of(MPI_Datatype type) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  check(MPI_Type_get_extent(type, &lower, &extent), "MPI_Type_get_extent");
  return extent;
}

}  // namespace detail

inline datatype contiguous_type(std::size_t n, MPI_Datatype base) {
  const lock calls;
  if (n <= static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    MPI_Datatype result = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(static_cast<int>(n), base, &result), "MPI_Type_contiguous");
    return datatype(result);
  }
  return datatype(detail::repeat(n, detail::extent_of(base), base));
}

inline datatype strided_type(std::size_t block, std::ptrdiff_t stride, std::size_t count,
                             MPI_Datatype base) {
  const lock calls;
  const auto bytes = static_cast<MPI_Aint>(stride) * detail::extent_of(base);
  if (block == 1) {
    return datatype(detail::repeat(count, bytes, base));
  }
  const datatype row = contiguous_type(block, base);
  return datatype(detail::repeat(count, bytes, row.native()));
}

namespace detail {

/// One derived type per element type and process: `ready` publishes `type`.
struct derived_entry {
  std::atomic<bool> ready{false};
  MPI_Datatype type;
};

template <class T>
inline constinit derived_entry derived{};  // NOLINT(*-non-const-global-*)

inline void free_derived(void* entry) noexcept {
  MPI_Type_free(&static_cast<derived_entry*>(entry)->type);
}

// Serialises creation at MPI_THREAD_MULTIPLE. Taken after mpi::lock, which a caller may hold.
inline constinit short_lock derive_lock;

template <class T>
[[gnu::noinline, gnu::cold]] MPI_Datatype derive() {
  auto& entry = derived<T>;
  const lock calls;
  MPI_Datatype base = MPI_BYTE;
  std::size_t count = sizeof(T);
  if constexpr (cohort::detail::is_std_array<T>) {
    base = datatype_of<typename T::value_type>();  // which may take the lock below
    count = std::tuple_size_v<T>;
  }
  const short_lock::guard hold(derive_lock);
  if (entry.ready.load(std::memory_order_relaxed)) {
    return entry.type;
  }
  watch_if_there();
  entry.type = contiguous_type(count, base).release();
  at_finalize(&free_derived, &entry);
  entry.ready.store(true, std::memory_order_release);
  return entry.type;
}

}  // namespace detail

template <element T>
inline MPI_Datatype datatype_of() {
  using as = detail::resolved_t<T>;
  if constexpr (detail::is_predefined<as>) {
    return detail::predefined<as>();
  } else {
    const auto& entry = detail::derived<as>;
    return entry.ready.load(std::memory_order_acquire) ? entry.type : detail::derive<as>();
  }
}

template <element T>
inline MPI_Datatype reduction_type_of() {
  using as = detail::resolved_t<T>;
  if constexpr (std::same_as<as, char> || std::same_as<as, wchar_t>) {
    return detail::integer_type<as>();
  } else {
    return datatype_of<T>();
  }
}

}  // namespace cohort::mpi
