// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file More types of the standard library for core/wire.hpp: unique_ptr, variant, complex,
/// bitset, durations and points of the system's time, error codes.
///
/// They stand apart because their headers are not needed by every message.

#include <cohort/core/element.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/wire.hpp>

#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

// The functions below are found in this namespace because the archive is of it.
namespace cohort::wire {

/// Null, or an object of exactly the type T: no polymorphism. Lists of such pointers end at
/// reader::depth_limit.
template <class Archive, class T>
void wire_fields(Archive& archive, std::unique_ptr<T>& pointer) {
  bool there = pointer != nullptr;
  archive(there);
  if constexpr (Archive::reads) {
    pointer.reset();
    if (there) pointer = std::make_unique<T>();
  }
  if (there) archive(*pointer);
}

/// (Told by its structure: `<complex>` costs every user of this header a twentieth of a second.)
template <class Archive, cohort::detail::complex_like Complex>
void wire_fields(Archive& archive, Complex& value) {
  auto real = value.real();
  auto imaginary = value.imag();
  archive(real, imaginary);
  value = {real, imaginary};
}

/// Eight bits a byte, the lowest first.
template <class Archive, std::size_t N>
void wire_fields(Archive& archive, std::bitset<N>& bits) {
  for (std::size_t at = 0; at < N; at += 8) {
    std::uint8_t byte = 0;
    for (std::size_t i = 0; i < 8 && at + i < N; ++i) {
      byte = static_cast<std::uint8_t>(byte | (bits[at + i] ? 1U << i : 0U));
    }
    archive(byte);
    for (std::size_t i = 0; i < 8 && at + i < N; ++i) bits[at + i] = (byte >> i & 1U) != 0;
  }
}

template <class Archive, class Rep, class Period>
void wire_fields(Archive& archive, std::chrono::duration<Rep, Period>& value) {
  Rep count = value.count();
  archive(count);
  value = std::chrono::duration<Rep, Period>(count);
}

/// Of the system's clock only: the others begin anew in every machine.
template <class Archive, class Duration>
void wire_fields(Archive& archive,
                 std::chrono::time_point<std::chrono::system_clock, Duration>& value) {
  Duration since = value.time_since_epoch();
  archive(since);
  value = std::chrono::time_point<std::chrono::system_clock, Duration>(since);
}

/// The alternative's number and its value; every alternative must have a default constructor. A
/// variant that is valueless by exception cannot be sent: std::bad_variant_access.
template <class Archive, class... T>
void wire_fields(Archive& archive, std::variant<T...>& value) {
  if constexpr (Archive::reads) {
    const std::uint64_t index = archive.varint_up_to(sizeof...(T) - 1);
    const auto read = [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((I == index ? archive(value.template emplace<I>()) : void()), ...);
    };
    if (archive.ok()) read(std::index_sequence_for<T...>{});
  } else {
    if (value.valueless_by_exception()) throw std::bad_variant_access();
    archive.varint(value.index());
    std::visit([&archive](const auto& one) { archive(one); }, value);
  }
}

/// The category's name and the value; category.hpp tells what becomes of unknown names.
template <class Archive>
void wire_fields(Archive& archive, std::error_code& code) {
  if constexpr (Archive::reads) {
    const std::string name(archive.text());
    const std::int64_t value = archive.signed_varint();
    if (value < std::int64_t{INT32_MIN} || value > std::int64_t{INT32_MAX}) {
      archive.fail(wire_errc::bad_value);
    }
    if (archive.ok()) code.assign(static_cast<int>(value), category_named(name));
  } else {
    archive.text(code.category().name());
    archive.signed_varint(code.value());
  }
}

namespace detail {

template <cohort::detail::complex_like T>
inline constexpr bool copied_whole<T> =
    copied_whole<typename T::value_type> && std::is_trivially_copyable_v<T>;

}  // namespace detail

}  // namespace cohort::wire
