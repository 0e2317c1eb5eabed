// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// From hashes to numbers: an open table that knows nothing of what is numbered.

#include <cohort/graph/machine/arena.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

/// Nothing is taken out but all of it.
class index_table {
 public:
  index_table() = default;
  index_table(index_table&& other) noexcept { swap(other); }
  index_table& operator=(index_table&& other) noexcept {
    swap(other);
    return *this;
  }
  void swap(index_table& other) noexcept {
    slots_.swap(other.slots_);
    std::swap(mask_, other.mask_);
    std::swap(count_, other.count_);
    std::swap(most_, other.most_);
  }

  /// The number with this hash for which `is_it(number)` holds, or `none`.
  template <class IsIt>
  [[nodiscard]] std::uint32_t find(std::uint32_t hash, IsIt is_it) const {
    if (count_ == 0) return none;  // it may have no slots
    for (std::size_t at = hash & mask_;; at = (at + stride) & mask_) {
      const slot& one = slots_[at];
      if (one.number == none) return none;
      if (one.hash == hash && is_it(one.number)) return one.number;
    }
  }
  /// Requires that it is not there.
  void insert(std::uint32_t hash, std::uint32_t number) {
    if (count_ == most_) grow();
    ++count_;
    put({hash, number});
  }
  void clear() noexcept {
    if (std::exchange(count_, 0) != 0) std::fill(slots_.begin(), slots_.end(), slot{});
  }

 private:
  // Hashes of neighbours fill a line of eight slots. One that is full is left at once, not slot by
  // slot; an odd stride comes to all slots.
  static constexpr std::size_t stride = 9;
  struct slot {
    std::uint32_t hash = 0;
    std::uint32_t number = none;
  };
  void put(slot one) noexcept {
    std::size_t at = one.hash & mask_;
    while (slots_[at].number != none) at = (at + stride) & mask_;
    slots_[at] = one;
  }
  void grow() {
    const auto old =
        std::exchange(slots_, std::vector<slot>(std::max<std::size_t>(64, slots_.size() * 2)));
    mask_ = slots_.size() - 1;
    most_ = slots_.size() / 2;
    for (const slot& one : old) {
      if (one.number != none) put(one);
    }
  }
  std::vector<slot> slots_;  // none, or a power of two, at most half full
  std::size_t mask_ = 0;
  std::size_t count_ = 0;
  std::size_t most_ = 0;
};

}  // namespace cohort::graph::machine
