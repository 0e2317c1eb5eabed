// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Memory that only grows until all of it is forgotten at once, at the end of a window.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

/// The number of something that is not there.
inline constexpr std::uint32_t none = ~std::uint32_t{0};

/// A sequence of places that do not move, and are used again after `clear`. Whoever takes one makes
/// what stands there, and ends it if that is needed.
template <class T, std::uint32_t Block = 4096>
class arena {
 public:
  arena() = default;
  arena(arena&& other) noexcept { swap(other); }
  arena& operator=(arena&& other) noexcept {
    swap(other);
    return *this;
  }
  void swap(arena& other) noexcept {
    blocks_.swap(other.blocks_);
    owned_.swap(other.owned_);
    std::swap(next_, other.next_);
    std::swap(end_, other.end_);
  }

  /// So many places one behind the other; returns the number of the first.
  std::uint32_t take(std::uint32_t count) {
    if (count > end_ - next_) [[unlikely]]
      make_room(count);
    return std::exchange(next_, next_ + count);
  }
  /// All from this one on are free again. It was the last that was taken.
  void give_back(std::uint32_t first) noexcept { next_ = first; }
  [[nodiscard]] T& operator[](std::uint32_t at) noexcept { return blocks_[at / Block][at % Block]; }
  [[nodiscard]] const T& operator[](std::uint32_t at) const noexcept {
    return blocks_[at / Block][at % Block];
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return next_; }
  /// In bytes, used or not.
  [[nodiscard]] std::size_t capacity() const noexcept { return blocks_.size() * Block * sizeof(T); }
  void clear() noexcept {
    next_ = 0;
    end_ = blocks_.empty() ? 0 : Block;
  }

 private:
  // Moves on to blocks that lie one behind the other and have room for `count`.
  void make_room(std::uint32_t count) {
    const std::size_t wanted = std::max<std::size_t>(1, (count + Block - 1) / Block);
    std::size_t first = (next_ + Block - 1) / Block;
    for (; first + wanted <= blocks_.size(); ++first) {
      std::size_t run = 1;
      while (run < wanted && blocks_[first + run] == blocks_[first] + run * Block) ++run;
      if (run == wanted) break;
    }
    if (first + wanted > blocks_.size()) {
      first = blocks_.size();
      owned_.push_back(std::make_unique_for_overwrite<place[]>(wanted * Block));
      for (std::size_t i = 0; i < wanted; ++i) {
        void* const begin = owned_.back().get() + i * Block;
        blocks_.push_back(static_cast<T*>(begin));
      }
    }
    next_ = static_cast<std::uint32_t>(first) * Block;
    end_ = next_ + static_cast<std::uint32_t>(wanted) * Block;
  }

  struct place {
    alignas(T) std::byte bytes[sizeof(T)];
  };
  std::vector<T*> blocks_;
  std::vector<std::unique_ptr<place[]>> owned_;
  std::uint32_t next_ = 0;
  std::uint32_t end_ = 0;  // of the blocks that `next_` is in
};

}  // namespace cohort::graph::machine
