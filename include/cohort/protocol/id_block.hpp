// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Ids of the cache in a message, as bits or as differences.

#include <cohort/protocol/codec.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::protocol {

/// Ids, gathered in any order and without repetition, to be sent as a bit set or as a list of
/// differences, whichever is smaller. Its memory is kept from message to message.
class id_block {
 public:
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  /// Adds an id that is not there.
  void insert(std::uint32_t id);
  void clear() noexcept;
  /// Appends the part `ids`.
  void write(wire::writer& out) const;
  /// Calls `visit(id)` for each id of a part in ascending order, while the reader is sound.
  template <class Visit>
  static void read(wire::reader& in, Visit visit);

 private:
  template <class Visit>
  void for_each(Visit visit) const;

  std::vector<std::uint64_t> words_;
  std::size_t first_ = SIZE_MAX;  // the words that are not zero lie in [first_, last_]
  std::size_t last_ = 0;
  std::size_t count_ = 0;
};

// ---- implementation --------------------------------------------------------------------------

inline void id_block::insert(std::uint32_t id) {
  const std::size_t word = id / 64;
  const std::uint64_t bit = std::uint64_t{1} << (id % 64);
  if (word >= words_.size()) words_.resize(word + 1);
  words_[word] |= bit;
  first_ = std::min(first_, word);
  last_ = std::max(last_, word);
  ++count_;
}

inline void id_block::clear() noexcept {
  if (count_ != 0) {
    std::fill(words_.begin() + static_cast<std::ptrdiff_t>(first_),
              words_.begin() + static_cast<std::ptrdiff_t>(last_) + 1, 0);
  }
  first_ = SIZE_MAX;
  last_ = count_ = 0;
}

template <class Visit>
void id_block::for_each(Visit visit) const {
  for (std::size_t word = first_; word <= last_; ++word) {
    for (std::uint64_t bits = words_[word]; bits != 0; bits &= bits - 1) {
      visit(
          static_cast<std::uint32_t>(word * 64 + static_cast<std::size_t>(std::countr_zero(bits))));
    }
  }
}

inline void id_block::write(wire::writer& out) const {
  if (empty()) return;
  out.byte(static_cast<std::uint8_t>(part::ids));
  const std::size_t bytes = (last_ - first_ + 1) * 8;
  if (bytes + 4 <= count_) {  // a difference takes at least a byte
    out.varint(first_ + 1);
    out.varint(last_ - first_ + 1);
    for (std::size_t word = first_; word <= last_; ++word) out.put(words_[word]);
    return;
  }
  out.varint(0);
  out.varint(count_);
  std::uint32_t next = 0;
  for_each([&](std::uint32_t id) {
    out.varint(id - next);
    next = id + 1;
  });
}

template <class Visit>
void id_block::read(wire::reader& in, Visit visit) {
  const std::uint64_t first = in.varint_up_to(none / 64);
  if (first == 0) {
    const std::size_t count = in.count();
    std::uint64_t id = 0;
    for (std::size_t i = 0; i < count; ++i, ++id) {
      id += in.varint();
      if (id >= none) in.fail(wire_errc::bad_value);
      if (!in.ok()) return;
      visit(static_cast<std::uint32_t>(id));
    }
    return;
  }
  const std::size_t words = in.count(8);
  if (first - 1 + words > none / 64) in.fail(wire_errc::bad_value);
  for (std::size_t i = 0; i < words; ++i) {
    auto bits = in.get<std::uint64_t>();
    if (!in.ok()) return;
    for (; bits != 0; bits &= bits - 1) {
      visit(static_cast<std::uint32_t>((first - 1 + i) * 64 +
                                       static_cast<std::uint64_t>(std::countr_zero(bits))));
    }
  }
}

}  // namespace cohort::protocol
