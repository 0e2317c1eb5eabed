// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The name of a type as the compiler writes it, and a number for it that travels.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cohort::detail {

// `auto`, as compilers would explain std::string_view behind the name of T.
template <class T>
[[nodiscard]] constexpr auto type_name() noexcept {
  const std::string_view text(__PRETTY_FUNCTION__);
  const std::size_t first = text.find("T = ") + 4;
  return text.substr(first, text.rfind(']') - first);
}

/// FNV-1a of a name, never 0.
[[nodiscard]] constexpr std::uint64_t name_hash(std::string_view text) noexcept {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash == 0 ? 1 : hash;
}

/// Equal on ranks whose programs the same compiler has made.
template <class T>
inline constexpr std::uint64_t type_number = name_hash(type_name<T>());

}  // namespace cohort::detail
