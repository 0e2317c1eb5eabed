// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Short messages between ranks that share memory.

#include <cohort/core/copy.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::comm {

/// A ring for each pair of ranks, in memory that they share: one writes it, one reads it, in order.
/// A message of up to 56 bytes is one cache line, and so is what its receiver looks at.
///
/// A ring is of lines of 64 bytes. A message begins with its length and 1, in a line of its own,
/// where 0 says that it is not there yet; whoever writes one first makes the word behind it 0. How
/// far the receiver has come is in another line, which the sender reads when there seems to be no
/// room. The memory is of zeros at first.
class message_rings {
 public:
  static constexpr std::size_t line = 64;
  /// Lines of a ring for `ranks`, so that all rings of a rank take at most 256 KiB.
  [[nodiscard]] static std::size_t lines(std::size_t ranks) noexcept {
    return std::clamp<std::size_t>(4096 / ranks, 16, 256);
  }
  /// What all rings of `ranks` take.
  [[nodiscard]] static std::size_t bytes(std::size_t ranks) noexcept {
    return ranks * ranks * (lines(ranks) + 1) * line;
  }

  message_rings(std::span<std::byte> shared, int rank, int ranks)
      : shared_(shared.data()),
        rank_(static_cast<std::size_t>(rank)),
        ranks_(static_cast<std::size_t>(ranks)),
        lines_(lines(ranks_)),
        out_(ranks_),
        in_(ranks_),
        whole_(longest()) {}

  /// Bytes of the longest message.
  [[nodiscard]] std::size_t longest() const noexcept {
    return (lines_ / 2 - 1) * line - sizeof(word);
  }
  /// False where there is no room now. *Requires* that it is not longer than `longest()`.
  bool send(int to, std::span<const std::byte> message) noexcept {
    side& own = out_[index(to)];
    const ring at = ring_of(rank_, index(to));
    const std::size_t count = lines_of(message.size());
    if (own.place + count + 1 - own.other > lines_) {
      own.other = at.left->load(std::memory_order_acquire);
      if (own.place + count + 1 - own.other > lines_) return false;
    }
    word_at(at, own.place + count).store(0, std::memory_order_relaxed);
    each_part(own.place, message.size(),
              [&](std::size_t ring_begin, std::size_t begin, std::size_t length) {
                copy_bytes(at.lines + ring_begin, message.data() + begin, length);
              });
    word_at(at, own.place).store(message.size() + 1, std::memory_order_release);
    own.place += count;
    return true;
  }
  /// Calls `take(std::span<const std::byte>)` for the next message of that rank, if there is one.
  template <class Take>
  bool receive(int from, Take take) {
    side& own = in_[index(from)];
    const ring at = ring_of(index(from), rank_);
    const word there = word_at(at, own.place).load(std::memory_order_acquire);
    if (there == 0) return false;
    const auto size = static_cast<std::size_t>(there - 1);
    // A word that no sender writes must not lead out of the ring.
    if (size > longest()) return false;
    const std::size_t begin = own.place % lines_ * line + sizeof(word);
    std::span<const std::byte> message(at.lines + begin, size);
    if (begin + size > lines_ * line) {  // it goes on at the beginning
      each_part(own.place, size, [&](std::size_t ring_begin, std::size_t to, std::size_t length) {
        copy_bytes(whole_.data() + to, at.lines + ring_begin, length);
      });
      message = std::span(whole_).first(size);
    }
    const struct leaving {
      side& own;
      ring at;
      std::size_t count;
      ~leaving() {
        own.place += count;
        at.left->store(own.place, std::memory_order_release);
      }
    } left{own, at, lines_of(size)};
    take(message);
    return true;
  }

 private:
  using word = std::uint64_t;
  static_assert(std::atomic<word>::is_always_lock_free, "they are shared between processes");
  struct ring {
    std::atomic<word>* left;  // lines that its receiver has left, ever
    std::byte* lines;
  };
  struct side {
    std::size_t place = 0;  // lines written, or read, ever
    std::size_t other = 0;  // of a sender: what it knows of the receiver
  };

  [[nodiscard]] static std::size_t index(int rank) noexcept {
    return static_cast<std::size_t>(rank);
  }
  [[nodiscard]] static std::size_t lines_of(std::size_t size) noexcept {
    return (sizeof(word) + size + line - 1) / line;
  }
  [[nodiscard]] ring ring_of(std::size_t from, std::size_t to) const noexcept {
    std::byte* const begin = shared_ + (from * ranks_ + to) * (lines_ + 1) * line;
    return {reinterpret_cast<std::atomic<word>*>(begin), begin + line};
  }
  [[nodiscard]] std::atomic<word>& word_at(const ring& at, std::size_t place) const noexcept {
    return *reinterpret_cast<std::atomic<word>*>(at.lines + place % lines_ * line);
  }
  /// Calls `visit(begin in the ring, begin in the message, length)` for its one or two parts.
  template <class Visit>
  void each_part(std::size_t place, std::size_t size, Visit visit) const {
    const std::size_t begin = place % lines_ * line + sizeof(word);
    const std::size_t first = std::min(size, lines_ * line - begin);
    visit(begin, std::size_t{0}, first);
    if (first != size) visit(std::size_t{0}, first, size - first);
  }

  std::byte* shared_;
  std::size_t rank_;
  std::size_t ranks_;
  std::size_t lines_;
  std::vector<side> out_;  // by rank
  std::vector<side> in_;
  std::vector<std::byte> whole_;  // a message that lies in two parts
};

}  // namespace cohort::comm
