// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file An ordered list of distinct ranks.

#include <cohort/core/error.hpp>

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <span>  // also brings the range concepts
#include <string>
#include <utility>
#include <vector>

namespace cohort {

/// Ranks of a communicator, in an order that matters: the position in the list is the rank in a
/// group or process set made from it. `ranks{0, 2, 4}` works inside a co_await expression, where
/// g++ 12 rejects a braced list of its own.
class ranks {
 public:
  using value_type = int;
  using const_iterator = std::vector<int>::const_iterator;

  ranks() noexcept {}
  /// The ranks one by one. Throws errc::bad_rank for a negative or a repeated one.
  template <std::same_as<int>... Rank>
    requires(sizeof...(Rank) > 0)
  explicit ranks(Rank... rank) : list_{rank...} {
    validate();
  }
  /// The ranks of a range of integers.
  template <class Range>
    requires std::ranges::input_range<const Range&> &&
             std::convertible_to<std::ranges::range_reference_t<const Range&>, int> &&
             (!std::same_as<Range, ranks>)
  explicit ranks(const Range& range) : list_(std::ranges::begin(range), std::ranges::end(range)) {
    validate();
  }

  /// The ranks from 0 to n - 1.
  [[nodiscard]] static ranks all(int n) { return stride(0, n, 1); }
  /// Every step-th rank from first up to, but without, last.
  [[nodiscard]] static ranks stride(int first, int last, int step);

  [[nodiscard]] const_iterator begin() const noexcept { return list_.begin(); }
  [[nodiscard]] const_iterator end() const noexcept { return list_.end(); }
  [[nodiscard]] std::size_t size() const noexcept { return list_.size(); }
  [[nodiscard]] bool empty() const noexcept { return list_.empty(); }
  [[nodiscard]] const int* data() const noexcept { return list_.data(); }
  [[nodiscard]] int operator[](std::size_t position) const noexcept { return list_[position]; }

  [[nodiscard]] bool contains(int rank) const noexcept { return position_of(rank) >= 0; }
  /// Where a rank stands in the list, or -1. Linear in the size.
  [[nodiscard]] int position_of(int rank) const noexcept;
  /// "0, 2, 4", for messages.
  [[nodiscard]] std::string str() const;

  friend bool operator==(const ranks&, const ranks&) = default;

 private:
  void validate() const;

  std::vector<int> list_;
};

}  // namespace cohort

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/core/detail/ranks.ipp>
#endif
