// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Random bytes of the system. Not <random>: that header costs every user a tenth of a
/// second.

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace cohort {

/// Bytes that nobody can guess, for tokens and for what must differ between processes. Any thread.
/// Throws std::system_error where the system has none. *Cost*: a system call.
template <std::size_t N>
[[nodiscard]] std::array<std::byte, N> random_bytes() {
  std::array<std::byte, N> out;
  static_assert(N <= 256);  // what getentropy gives at once
  if (::getentropy(out.data(), N) != 0) {
    throw std::system_error(errno, std::generic_category(), "getentropy");
  }
  return out;
}

/// The same as a number.
[[nodiscard]] inline std::uint64_t random_number() {
  return std::bit_cast<std::uint64_t>(random_bytes<sizeof(std::uint64_t)>());
}

}  // namespace cohort
