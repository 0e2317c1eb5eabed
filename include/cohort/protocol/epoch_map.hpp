// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A small map from the epochs of one name to indexes, made for epochs that follow each
/// other.

#include <cohort/protocol/numbers.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cohort::protocol {

/// Epochs to indexes. Mostly there is one, which lies here. Several lie close together, oldest
/// first, so they are slots of a vector whose memory is kept; one that is far from the rest, which
/// only a strange peer brings, goes to an ordinary map, so that no epoch costs more than its entry.
template <class Any = void>
class basic_epoch_map {
 public:
  [[nodiscard]] bool empty() const noexcept { return used_ == 0 && far_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return used_ + far_.size(); }

  /// The index at an epoch, or `none`.
  [[nodiscard]] std::uint32_t find(epoch number) const noexcept {
    if (slots_.empty()) {
      if (number == first_ && used_ != 0) return only_;
    } else {
      const auto offset = static_cast<std::uint64_t>(number - first_);
      if (offset < slots_.size() - head_ && slots_[head_ + offset] != none) {
        return slots_[head_ + offset];
      }
    }
    if (far_.empty()) return none;
    const auto found = far_.find(number);
    return found == far_.end() ? none : found->second;
  }

  /// The epoch must be free.
  void insert(epoch number, std::uint32_t index) {
    if (used_ == 0) {
      first_ = number;
      only_ = index;
      used_ = 1;
      return;
    }
    if (slots_.empty()) slots_.push_back(only_);
    if (number < first_ && static_cast<std::uint64_t>(first_ - number) <= head_) {
      while (first_ > number) {
        slots_[--head_] = none;
        --first_;
      }
    }
    const auto offset = static_cast<std::uint64_t>(number - first_);
    if (number < first_ || offset > slots_.size() - head_ + slack) {
      far_.emplace(number, index);
      return;
    }
    while (slots_.size() - head_ <= offset) slots_.push_back(none);
    slots_[head_ + offset] = index;
    ++used_;
  }
  /// Removes an epoch and returns what it held, or `none`.
  std::uint32_t erase(epoch number) {
    if (slots_.empty() && used_ != 0 && number == first_) {
      used_ = 0;
      return only_;
    }
    const auto offset = static_cast<std::uint64_t>(number - first_);
    if (offset >= slots_.size() - head_ || slots_[head_ + offset] == none) {
      if (far_.empty()) return none;
      const auto found = far_.find(number);
      if (found == far_.end()) return none;
      const std::uint32_t index = found->second;
      far_.erase(found);
      return index;
    }
    const std::uint32_t index = slots_[head_ + offset];
    slots_[head_ + offset] = none;
    if (--used_ == 0) {
      slots_.clear();
      head_ = 0;
      return index;
    }
    while (slots_[head_] == none) {
      ++head_;
      ++first_;
    }
    if (head_ > 64 && head_ > slots_.size() / 2) {  // amortised: as many have gone as are moved
      slots_.erase(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    return index;
  }
  /// Subtracts from all epochs.
  void renumber(epoch by) {
    first_ -= by;
    if (far_.empty() || by == 0) return;
    std::map<epoch, std::uint32_t> moved;
    for (const auto& [number, index] : far_) moved.emplace(number - by, index);
    far_ = std::move(moved);
  }
  void clear() noexcept {
    slots_.clear();
    head_ = 0;
    used_ = 0;
    far_.clear();
  }

  /// Calls `visit(epoch, index)` in ascending order.
  template <class Visit>
  void for_each(Visit visit) const {
    auto far = far_.begin();
    const auto near = [&](epoch number, std::uint32_t index) {
      for (; far != far_.end() && far->first < number; ++far) visit(far->first, far->second);
      if (index != none) visit(number, index);
    };
    if (slots_.empty() && used_ != 0) near(first_, only_);
    for (std::size_t i = head_; i < slots_.size(); ++i) {
      near(first_ + static_cast<epoch>(i - head_), slots_[i]);
    }
    for (; far != far_.end(); ++far) visit(far->first, far->second);
  }

 private:
  static constexpr std::uint64_t slack = 1024;

  epoch first_ = 0;
  std::uint32_t only_ = none;         // of first_, where there are no slots
  std::size_t used_ = 0;              // not counting those that are far
  std::vector<std::uint32_t> slots_;  // from head_ on, for first_, first_ + 1, ...
  std::size_t head_ = 0;
  std::map<epoch, std::uint32_t> far_;
};
using epoch_map = basic_epoch_map<>;

// ---- implementation --------------------------------------------------------------------------

}  // namespace cohort::protocol
