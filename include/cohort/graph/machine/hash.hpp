// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The hash of definitions, 128 bits (graph K5), and sums of hashes (graph A2).

#include <cohort/graph/machine/names.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace cohort::graph::machine {

/// Both halves of the product of two numbers: one multiplication that mixes all of their bits.
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using wide = unsigned __int128;
  const wide product = static_cast<wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

/// Mixes words, two at a time. Equal on machines of one byte order, which all ranks of a job are.
class hasher {
 public:
  hasher& words(std::uint64_t one, std::uint64_t other) noexcept {
    low_ = mixed(low_ ^ one, other ^ first);
    high_ = mixed(high_ + other, one ^ second);
    ++rounds_;
    return *this;
  }
  hasher& name(const key& one, std::uint64_t use = 0) noexcept {
    return words(one.low + use * third,
                 (std::uint64_t{one.high} << 32U) | static_cast<std::uint32_t>(one.home));
  }
  /// Their number is to be told as well.
  hasher& bytes(std::span<const std::byte> all) noexcept {
    for (; all.size() > 16; all = all.subspan(16)) {
      std::uint64_t two[2];
      std::memcpy(two, all.data(), sizeof two);
      words(two[0], two[1]);
    }
    std::uint64_t rest[2] = {0, 0};
    if (!all.empty()) std::memcpy(rest, all.data(), all.size());
    return words(rest[0], rest[1]);
  }
  [[nodiscard]] digest128 finish() const noexcept {
    const std::uint64_t low = mixed(low_ ^ rounds_, high_ ^ first);
    return {low, mixed(high_ + rounds_, low ^ third)};
  }

 private:
  static constexpr std::uint64_t first = 0xa0761d6478bd642fU;
  static constexpr std::uint64_t second = 0xe7037ed1a0b428dbU;
  static constexpr std::uint64_t third = 0x8ebc6af09c88c6e3U;
  std::uint64_t low_ = second;
  std::uint64_t high_ = third;
  std::uint64_t rounds_ = 0;
};

/// How many tasks, and the sum of their hashes, which does not depend on their order (graph A2).
struct task_sum {
  std::uint64_t count = 0;
  digest128 sum;
  void add(const digest128& one) noexcept {
    ++count;
    sum.low += one.low;
    sum.high += one.high + (sum.low < one.low ? 1U : 0U);
  }
  friend bool operator==(const task_sum&, const task_sum&) = default;
};

}  // namespace cohort::graph::machine
