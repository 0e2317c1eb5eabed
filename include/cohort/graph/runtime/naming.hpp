// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// How the name of a task becomes its key: hashes that are equal on all ranks (graph K1).

#include <cohort/graph/machine/hash.hpp>
#include <cohort/graph/machine/names.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cohort::graph::runtime {

using machine::mixed;

inline constexpr std::uint64_t odd_a = 0xa0761d6478bd642fU;
inline constexpr std::uint64_t odd_b = 0xe7037ed1a0b428dbU;
inline constexpr std::uint64_t odd_c = 0x8ebc6af09c88c6e3U;
inline constexpr std::uint64_t odd_d = 0x589965cc75374cc3U;

/// Indices as hashes: of the eight neighbours by the last index together, and which of them it is.
/// So their keys differ in the last three bits alone, and lie side by side in tables.
struct hashed_indices {
  machine::digest128 of_eight;
  std::uint64_t which = 0;
  /// Families of the same indices have the same home by this.
  [[nodiscard]] machine::digest128 of_all() const noexcept {
    return {of_eight.low, mixed(of_eight.high ^ which, odd_c)};
  }
};

/// Of the first indices alone.
template <std::size_t Count>
[[nodiscard]] inline hashed_indices hash_of(
    const std::array<std::int64_t, machine::most_indices>& indices) noexcept {
  std::uint64_t low = odd_a ^ Count;
  std::uint64_t high = odd_b + Count;
  std::uint64_t which = 0;
  for (std::size_t i = 0; i < Count; ++i) {
    auto bits = static_cast<std::uint64_t>(indices[i]);
    if (i + 1 == Count) {
      which = bits % 8;
      bits /= 8;
    }
    low = mixed(low ^ bits, odd_c);
    high = mixed(high + bits, odd_d ^ low);
  }
  return {{low, high}, which};
}

[[nodiscard]] constexpr machine::digest128 hash_of(std::string_view text) noexcept {
  std::uint64_t low = odd_a ^ text.size();
  std::uint64_t high = odd_b + text.size();
  while (!text.empty()) {
    std::uint64_t bits = 0;
    const std::size_t count = text.size() < sizeof bits ? text.size() : sizeof bits;
    for (std::size_t i = 0; i < count; ++i) {
      bits |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
    }
    low = mixed(low ^ bits, odd_c);
    high = mixed(high + bits, odd_d ^ low);
    text.remove_prefix(count);
  }
  return {low, high};
}

/// What the keys of a family have in common.
[[nodiscard]] inline machine::digest128 seed_of(const machine::scope_id& scope,
                                                std::string_view family) noexcept {
  const machine::digest128 name = hash_of(family);
  return {mixed(name.low ^ scope.name, odd_b ^ scope.opening),
          mixed(name.high ^ scope.opening, odd_a ^ scope.name)};
}

[[nodiscard]] inline machine::key key_of(const machine::digest128& seed,
                                         const hashed_indices& indices,
                                         std::int32_t home) noexcept {
  const machine::digest128& eight = indices.of_eight;
  const std::uint64_t low = mixed(seed.low ^ eight.low, odd_d ^ eight.high);
  const std::uint64_t high = mixed(seed.high ^ eight.high, odd_a ^ eight.low);
  return {low ^ indices.which, static_cast<std::uint32_t>(high), home};
}

}  // namespace cohort::graph::runtime
