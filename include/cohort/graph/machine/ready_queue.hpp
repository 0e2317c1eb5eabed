// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The tasks of one rank that can run, and which of them is the next.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::graph::machine {

/// Numbers of which the least is taken. Each number is in it once.
///
/// The least one stands by itself; of each other one a bit is set, in words of 64, and so on for
/// words that are not 0: to take one looks at as many words as the greatest number has digits to
/// the base of 64, and the memory is at most a quarter of a byte for each number up to the
/// greatest.
class least_first {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// Not of an empty one.
  [[nodiscard]] std::uint32_t least() const noexcept { return least_; }
  void insert(std::uint32_t one) {
    if (size_ == 0) {
      least_ = one;
    } else {
      set(std::max(one, least_));
      least_ = std::min(one, least_);
    }
    ++size_;
  }
  [[nodiscard]] std::uint32_t take() noexcept {
    const std::uint32_t taken = least_;
    if (--size_ != 0) least_ = take_bit();
    return taken;
  }
  /// Whether it was there.
  bool erase(std::uint32_t one) noexcept {
    if (empty()) return false;
    if (one == least_) {
      static_cast<void>(take());
      return true;
    }
    if (!has_bit(one)) return false;
    clear_bit(one);
    --size_;
    return true;
  }
  void clear() noexcept {
    while (!empty()) static_cast<void>(take());
  }

 private:
  using word = std::uint64_t;
  static constexpr std::uint32_t digit = 6;  // bits of a number that tell a bit of a word

  [[nodiscard]] static word bit_of(std::uint32_t number) noexcept {
    return word{1} << (number % 64);
  }
  [[nodiscard]] bool has_bit(std::uint32_t number) const noexcept {
    const std::size_t at = number >> digit;
    return !levels_.empty() && at < levels_[0].size() && (levels_[0][at] & bit_of(number)) != 0;
  }
  void set(std::uint32_t number) {
    if (levels_.empty() || number >> digit >= levels_[0].size()) [[unlikely]]
      grow(number);
    for (std::vector<word>& level : levels_) {
      word& all = level[number >> digit];
      const bool was_empty = all == 0;
      all |= bit_of(number);
      if (!was_empty) return;
      number >>= digit;
    }
  }
  void clear_bit(std::uint32_t number) noexcept {
    for (std::vector<word>& level : levels_) {
      word& all = level[number >> digit];
      all &= ~bit_of(number);
      if (all != 0) return;
      number >>= digit;
    }
  }
  [[nodiscard]] std::uint32_t take_bit() noexcept {
    std::uint32_t number = 0;
    for (std::size_t i = levels_.size(); i-- != 0;) {
      number = number << digit | static_cast<std::uint32_t>(std::countr_zero(levels_[i][number]));
    }
    clear_bit(number);
    return number;
  }
  // The last level is one word.
  void grow(std::uint32_t number) {
    const std::size_t words = std::bit_ceil((std::size_t{number} >> digit) + 1);
    if (levels_.empty()) levels_.emplace_back();
    levels_[0].resize(words);
    for (std::size_t i = 1; levels_[i - 1].size() > 1; ++i) {
      if (i == levels_.size()) levels_.emplace_back();
      const std::vector<word>& below = levels_[i - 1];
      levels_[i].resize((below.size() + 63) / 64);
      if (below[0] != 0) levels_[i][0] |= 1;  // where this level is new
    }
  }

  std::vector<std::vector<word>> levels_;
  std::size_t size_ = 0;
  std::uint32_t least_ = 0;
};

/// What ready tasks are chosen by.
enum class readiness : std::uint8_t {
  urgent,  ///< other ranks wait for the value
  update,  ///< the value that it takes has made it ready: no new value while old ones can be used
           ///< up
  other
};

/// Ready tasks, the most urgent ones first. Those of a kind come by the numbers of their records,
/// so in the order in which this rank has first named them: mostly that of the program, in which
/// one rank alone would run them.
class ready_queue {
 public:
  [[nodiscard]] bool empty() const noexcept {
    return std::all_of(lanes_.begin(), lanes_.end(), [](const lane& one) { return one.empty(); });
  }
  void insert(std::uint32_t task, readiness how) { of(how).unseen.insert(task); }
  /// Another rank now waits for the value of this task, which is ready.
  void hurry(std::uint32_t task) {
    lane& urgent = of(readiness::urgent);
    if (urgent.erase(task)) return urgent.unseen.insert(task);
    urgent.unseen.insert(task);  // first, for it may throw
    if (of(readiness::update).erase(task) || of(readiness::other).erase(task)) return;
    static_cast<void>(urgent.erase(task));  // it was not ready
  }
  /// Not of an empty one.
  [[nodiscard]] std::uint32_t take() noexcept {
    return std::find_if(lanes_.begin(), lanes_.end(), [](const lane& one) { return !one.empty(); })
        ->take();
  }
  /// The first one that is wanted. Those before it are put off: this does not look at them again.
  template <class Predicate>
  [[nodiscard]] std::optional<std::uint32_t> take_if(Predicate is_wanted) {
    for (lane& from : lanes_) {
      while (!from.unseen.empty()) {
        const std::uint32_t one = from.unseen.take();
        if (is_wanted(one)) return one;
        from.put_off.insert(one);
      }
    }
    return std::nullopt;
  }
  void clear() noexcept {
    for (lane& one : lanes_) one.clear();
  }

 private:
  struct lane {
    least_first unseen;
    least_first put_off;

    [[nodiscard]] bool empty() const noexcept { return unseen.empty() && put_off.empty(); }
    [[nodiscard]] std::uint32_t take() noexcept {
      if (put_off.empty()) return unseen.take();
      if (unseen.empty() || put_off.least() < unseen.least()) return put_off.take();
      return unseen.take();
    }
    bool erase(std::uint32_t task) noexcept { return unseen.erase(task) || put_off.erase(task); }
    void clear() noexcept {
      unseen.clear();
      put_off.clear();
    }
  };

  [[nodiscard]] lane& of(readiness how) noexcept { return lanes_[static_cast<std::size_t>(how)]; }

  std::array<lane, 3> lanes_;
};

}  // namespace cohort::graph::machine
