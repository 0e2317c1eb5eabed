// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The two queues of a rank: the ready operations, in order of priority and then of arrival;
/// and the parts of elected operations, in the order and on the communicators where they are
/// posted.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace cohort::protocol {

/// First in, first out, in memory that is kept.
template <class T>
class steady_fifo {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == all_.size(); }
  [[nodiscard]] std::size_t size() const noexcept { return all_.size() - head_; }
  [[nodiscard]] const T& front() const noexcept { return all_[head_]; }
  void push_back(const T& one) {
    // What is left is moved only when at least as much has gone.
    if (all_.size() == all_.capacity() && head_ >= size()) {
      all_.erase(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    all_.push_back(one);
  }
  void pop_front() noexcept {
    if (++head_ != all_.size()) return;
    all_.clear();
    head_ = 0;
  }

 private:
  std::vector<T> all_;
  std::size_t head_ = 0;
};

/// Elected operations start in log order from one queue (protocol X1). Most are posted whole, at
/// once, on the communicator that the set shares. One with later parts (data after sizes, pieces
/// with a window) posts these on the communicator of a *slot*, which it takes when it starts and
/// keeps until its last part is posted here; without slots the later parts of two operations cross,
/// and ranks disagree on the order of calls (protocol X2). An operation whose sizes are known waits
/// for the exchange that told them (protocol Z4). In a stream domain everything shares one slot:
/// the next operation starts when all parts of the one before are posted (protocol D1).
template <class Any = void>
class basic_start_queue {
 public:
  /// One operation, or a pack, which is one.
  struct item {
    std::uint32_t set = 0;
    std::uint64_t log_count = 0;  ///< of the operation; names it here
    bool exchanges = false;       ///< its first part exchanges sizes
    bool later_parts = false;     ///< it has parts after the first; so has what exchanges
    std::uint64_t reference = 0;  ///< log count of the exchange whose sizes it uses; 0: none
    void* owner = nullptr;        ///< the caller's
  };
  struct started {
    item what;
    std::uint32_t slot = 0;  ///< of its later parts
  };

  /// `slots` communicators per set for later parts, at least one.
  explicit basic_start_queue(std::uint32_t slots, bool stream_domain = false)
      : slots_(slots == 0 ? 1 : slots), stream_(stream_domain) {}

  /// In log order.
  void push(const item& what) { waiting_.push_back(what); }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return waiting_.size(); }
  [[nodiscard]] const item& head() const noexcept { return waiting_.front(); }
  /// The operation at the head never starts.
  void drop_head() noexcept { waiting_.pop_front(); }

  /// Whether the operation at the head can start.
  [[nodiscard]] bool ready() const {
    if (waiting_.empty()) return false;
    const item& head = waiting_.front();
    if (head.reference != 0 && exchanging_.contains(head.reference)) return false;  // [protocol Z4]
    if (!stream_ && !head.later_parts) return true;
    return !taken_.contains(key(head.set, slot_of_next(head.set)));  // [protocol X2]
  }
  /// Starts it: the caller posts its first part. It must be ready.
  started next() {
    started result{waiting_.front(), 0};
    waiting_.pop_front();
    const item& what = result.what;
    if (what.exchanges) exchanging_.insert(what.log_count);
    if (what.later_parts) {
      result.slot = slot_of_next(what.set);
      ++turns_[what.set];
      taken_.insert(key(what.set, result.slot));
    }
    return result;
  }
  /// The exchange of sizes of a started operation is complete here.
  void exchanged(std::uint64_t log_count) { exchanging_.erase(log_count); }
  /// The last part of a started operation has been posted here. Not for those of one part.
  void posted_last(std::uint32_t set, std::uint32_t slot) { taken_.erase(key(set, slot)); }

 private:
  using slot_key = std::pair<std::uint32_t, std::uint32_t>;

  [[nodiscard]] slot_key key(std::uint32_t set, std::uint32_t slot) const noexcept {
    return stream_ ? slot_key{0, 0} : slot_key{set, slot};
  }
  // Members of a set see all its operations, so they count the same.
  [[nodiscard]] std::uint32_t slot_of_next(std::uint32_t set) const {
    const auto found = turns_.find(set);
    return stream_ || found == turns_.end() ? 0 : found->second % slots_;
  }

  std::uint32_t slots_;
  bool stream_;
  steady_fifo<item> waiting_;
  std::map<std::uint32_t, std::uint32_t> turns_;  // per set: operations with later parts so far
  std::set<slot_key> taken_;
  std::set<std::uint64_t> exchanging_;
};
using start_queue = basic_start_queue<>;

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

}  // namespace cohort::protocol
