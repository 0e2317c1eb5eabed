// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A queue of ready operations in order of priority, then of arrival.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::protocol {

/// Items mostly come in the order in which they leave, so that is a plain queue; those that come
/// out of order go to a heap beside it. What has been withdrawn stays until it would be next: the
/// caller says whether an item still stands, and tells of each that no longer does, so that these
/// are thrown out before they are the most.
template <class Any = void>
class basic_ready_queue {
 public:
  struct item {
    std::uint32_t index = UINT32_MAX;
    std::int32_t priority = 0;
    std::uint64_t arrival = 0;

    /// Whether this one leaves first.
    [[nodiscard]] bool before(const item& other) const noexcept {
      return priority != other.priority ? priority > other.priority : arrival < other.arrival;
    }
  };

  void push(const item& one) {
    if (head_ == in_order_.size()) {
      in_order_.clear();
      head_ = 0;
    }
    if (in_order_.empty() || in_order_.back().before(one)) {
      if (head_ > 64 && head_ > in_order_.size() / 2) {
        in_order_.erase(in_order_.begin(), in_order_.begin() + static_cast<std::ptrdiff_t>(head_));
        head_ = 0;
      }
      in_order_.push_back(one);
    } else {
      others_.push_back(one);
      std::push_heap(others_.begin(), others_.end(), after);
    }
  }
  /// The first item that stands, or null; forgets those before it.
  template <class Stands>
  [[nodiscard]] const item* front(Stands stands) {
    while (head_ != in_order_.size() || !others_.empty()) {
      const item* first = heap_first() ? &others_.front() : &in_order_[head_];
      if (stands(*first)) return first;
      pop();
      if (stale_ != 0) --stale_;
    }
    return nullptr;
  }
  /// Removes what `front` has returned.
  void pop() {
    if (heap_first()) {
      std::pop_heap(others_.begin(), others_.end(), after);
      others_.pop_back();
    } else {
      ++head_;
    }
  }
  void clear() noexcept {
    in_order_.clear();
    others_.clear();
    head_ = stale_ = 0;
  }
  /// An item that is still here does not stand any more.
  template <class Stands>
  void note_stale(Stands stands) {
    const std::size_t size = in_order_.size() - head_ + others_.size();
    if (++stale_ < 64 || stale_ < size / 2) return;
    std::vector<item> rest;
    for (std::size_t i = head_; i < in_order_.size(); ++i) {
      if (stands(in_order_[i])) rest.push_back(in_order_[i]);
    }
    in_order_ = std::move(rest);
    head_ = stale_ = 0;
    std::erase_if(others_, [&](const item& one) { return !stands(one); });
    std::make_heap(others_.begin(), others_.end(), after);
  }

 private:
  // std heaps have the largest on top.
  static bool after(const item& a, const item& b) noexcept { return b.before(a); }
  [[nodiscard]] bool heap_first() const noexcept {
    return head_ == in_order_.size() ||
           (!others_.empty() && others_.front().before(in_order_[head_]));
  }

  std::vector<item> in_order_;
  std::size_t head_ = 0;
  std::vector<item> others_;
  std::size_t stale_ = 0;
};
using ready_queue = basic_ready_queue<>;

// ---- implementation --------------------------------------------------------------------------

}  // namespace cohort::protocol
