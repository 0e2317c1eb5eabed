// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The hash of definitions, 128 bits (graph K5), and sums of hashes (graph A2).

#include <cohort/graph/machine/names.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace cohort::graph::machine {

/// Mixes words as MurmurHash3 does (x64, 128 bits). Equal on machines of one byte order, which all
/// ranks of a job are.
class hasher {
 public:
  hasher& word(std::uint64_t one) noexcept {
    low_ = (std::rotl(low_ ^ (std::rotl(one * first, 31) * second), 27) + high_) * 5 + 0x52dce729U;
    high_ = (std::rotl(high_ ^ (std::rotl(one * second, 33) * first), 31) + low_) * 5 + 0x38495ab5U;
    ++words_;
    return *this;
  }
  hasher& name(const key& one) noexcept {
    return word(one.low).word((std::uint64_t{one.high} << 32U) |
                              static_cast<std::uint32_t>(one.home));
  }
  hasher& bytes(std::span<const std::byte> all) noexcept {
    word(all.size());
    while (!all.empty()) {
      std::uint64_t one = 0;
      const std::size_t some = all.size() < sizeof one ? all.size() : sizeof one;
      std::memcpy(&one, all.data(), some);
      all = all.subspan(some);
      word(one);
    }
    return *this;
  }
  [[nodiscard]] digest128 finish() const noexcept {
    std::uint64_t low = low_ ^ words_;
    std::uint64_t high = high_ ^ words_;
    low += high;
    high += low;
    low = last_mix(low);
    high = last_mix(high);
    low += high;
    high += low;
    return {low, high};
  }

 private:
  static constexpr std::uint64_t first = 0x87c37b91114253d5U;
  static constexpr std::uint64_t second = 0x4cf5ad432745937fU;
  [[nodiscard]] static std::uint64_t last_mix(std::uint64_t one) noexcept {
    one = (one ^ (one >> 33U)) * 0xff51afd7ed558ccdU;
    one = (one ^ (one >> 33U)) * 0xc4ceb9fe1a85ec53U;
    return one ^ (one >> 33U);
  }
  std::uint64_t low_ = 0;
  std::uint64_t high_ = 0;
  std::uint64_t words_ = 0;
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
