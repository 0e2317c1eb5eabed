// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Lists of ranks, in an order that matters, and sets of ranks, as ascending ranges.

#include <cohort/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>  // also brings the range concepts
#include <string>
#include <string_view>
#include <system_error>
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

/// Ranks as ranges that neither touch nor overlap, in ascending order. Subtrees of the tree that
/// cohort builds are one range each, so sets of many ranks are short.
class rank_set {
 public:
  struct range {
    int first;
    int last;  ///< inclusive
    friend bool operator==(const range&, const range&) = default;
  };

  rank_set() noexcept {}
  rank_set(std::initializer_list<int> ranks) {
    for (const int rank : ranks) insert(rank);
  }
  /// The ranks from first to last, both included; none if last is below first.
  [[nodiscard]] static rank_set span(int first, int last) {
    rank_set result;
    result.insert(first, last);
    return result;
  }

  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] bool contains(int rank) const noexcept;
  /// Whether every rank of the other set is in this one.
  [[nodiscard]] bool includes(const rank_set& other) const;
  [[nodiscard]] bool intersects(const rank_set& other) const noexcept;
  [[nodiscard]] int front() const noexcept { return ranges_.front().first; }
  [[nodiscard]] int back() const noexcept { return ranges_.back().last; }
  [[nodiscard]] const std::vector<range>& ranges() const noexcept { return ranges_; }

  void insert(int rank) { insert(rank, rank); }
  void insert(int first, int last);
  void unite(const rank_set& other);
  void subtract(const rank_set& other);
  void clear() noexcept { ranges_.clear(); }
  [[nodiscard]] rank_set without(const rank_set& other) const {
    rank_set result = *this;
    result.subtract(other);
    return result;
  }
  [[nodiscard]] rank_set common_with(const rank_set& other) const;

  [[nodiscard]] std::vector<int> list() const;
  /// "0-3, 7", for messages.
  [[nodiscard]] std::string str() const;
  /// What `str` has written; nothing for any other text.
  [[nodiscard]] static std::optional<rank_set> parse(std::string_view text);

  friend bool operator==(const rank_set&, const rank_set&) = default;

 private:
  std::vector<range> ranges_;
};

/// "ranks 0-3, 7"; "rank 2"; "no rank".
[[nodiscard]] inline std::string ranks_text(const rank_set& ranks) {
  if (ranks.empty()) return "no rank";
  return (ranks.size() == 1 ? "rank " : "ranks ") + ranks.str();
}

// ---- implementation --------------------------------------------------------------------------

inline std::size_t rank_set::size() const noexcept {
  std::size_t count = 0;
  for (const range& part : ranges_) count += static_cast<std::size_t>(part.last - part.first) + 1;
  return count;
}

inline bool rank_set::contains(int rank) const noexcept {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), rank,
                       [](int value, const range& part) { return value < part.first; });
  return after != ranges_.begin() && rank <= std::prev(after)->last;
}

inline bool rank_set::includes(const rank_set& other) const { return other.without(*this).empty(); }

inline bool rank_set::intersects(const rank_set& other) const noexcept {
  auto mine = ranges_.begin();
  auto theirs = other.ranges_.begin();
  while (mine != ranges_.end() && theirs != other.ranges_.end()) {
    if (mine->last < theirs->first) {
      ++mine;
    } else if (theirs->last < mine->first) {
      ++theirs;
    } else {
      return true;
    }
  }
  return false;
}

inline void rank_set::insert(int first, int last) {
  if (last < first) return;
  if (ranges_.empty() || ranges_.back().last < first - 1) {  // the usual case: at the end
    ranges_.push_back({first, last});
    return;
  }
  auto begin = std::lower_bound(ranges_.begin(), ranges_.end(), first,
                                [](const range& part, int value) { return part.last < value - 1; });
  auto end = begin;
  while (end != ranges_.end() && end->first <= last + 1) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
    ++end;
  }
  if (begin == end) {
    ranges_.insert(begin, {first, last});
  } else {
    *begin = {first, last};
    ranges_.erase(begin + 1, end);
  }
}

inline void rank_set::unite(const rank_set& other) {
  if (ranges_.empty()) {
    ranges_ = other.ranges_;
    return;
  }
  std::vector<range> all(ranges_.size() + other.ranges_.size());
  std::merge(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(),
             all.begin(), [](const range& a, const range& b) { return a.first < b.first; });
  ranges_.clear();
  for (const range& part : all) {
    if (!ranges_.empty() && part.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, part.last);
    } else {
      ranges_.push_back(part);
    }
  }
}

inline void rank_set::subtract(const rank_set& other) {
  std::vector<range> rest;
  auto hole = other.ranges_.begin();
  for (range part : ranges_) {
    while (hole != other.ranges_.end() && hole->last < part.first) ++hole;
    for (auto cut = hole; cut != other.ranges_.end() && cut->first <= part.last; ++cut) {
      if (part.first < cut->first) rest.push_back({part.first, cut->first - 1});
      part.first = cut->last + 1;
    }
    if (part.first <= part.last) rest.push_back(part);
  }
  ranges_ = std::move(rest);
}

inline rank_set rank_set::common_with(const rank_set& other) const {
  return without(without(other));
}

inline std::vector<int> rank_set::list() const {
  std::vector<int> result;
  for (const range& part : ranges_) {
    for (int rank = part.first; rank <= part.last; ++rank) result.push_back(rank);
  }
  return result;
}

inline std::string rank_set::str() const {
  std::string text;
  for (const range& part : ranges_) {
    if (!text.empty()) text += ", ";
    text += std::to_string(part.first);
    if (part.last == part.first) continue;
    text += '-';  // "-" + std::string is what g++ 12 warns of at -O3
    text += std::to_string(part.last);
  }
  return text;
}

inline std::optional<rank_set> rank_set::parse(std::string_view text) {
  rank_set result;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int first = 0;
    auto [next, error] = std::from_chars(at, end, first);
    if (error != std::errc{} || first < 0) return std::nullopt;
    int last = first;
    if (next != end && *next == '-') {
      const auto [after, wrong] = std::from_chars(next + 1, end, last);
      if (wrong != std::errc{}) return std::nullopt;
      next = after;
    }
    result.insert(first, last);
    at = next != end && *next == ',' ? next + 1 : next;
    if (at != end && *at == ' ') ++at;
    if (at == next && at != end) return std::nullopt;
  }
  if (result.str() != text) return std::nullopt;
  return result;
}

inline ranks ranks::stride(int first, int last, int step) {
  if (step <= 0) {
    throw error(errc::invalid_argument, "ranks::stride: step=" + std::to_string(step));
  }
  ranks result;
  for (int rank = first; rank < last; rank += step) {
    result.list_.push_back(rank);
  }
  result.validate();
  return result;
}

inline int ranks::position_of(int rank) const noexcept {
  const auto found = std::find(list_.begin(), list_.end(), rank);
  return found == list_.end() ? -1 : static_cast<int>(found - list_.begin());
}

inline std::string ranks::str() const {
  std::string text;
  for (const int rank : list_) {
    text += text.empty() ? std::to_string(rank) : ", " + std::to_string(rank);
  }
  return text;
}

inline void ranks::validate() const {
  std::vector<int> sorted = list_;
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty() && sorted.front() < 0) {
    throw error(errc::bad_rank, "ranks: rank=" + std::to_string(sorted.front()));
  }
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    throw error(errc::bad_rank, "ranks: rank " + std::to_string(*twice) + " is repeated");
  }
}

}  // namespace cohort
