// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::block_list`: how many elements each rank has in a buffer, and where they start.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>  // brings the range concepts, without the cost of <ranges>
#include <utility>
#include <vector>

namespace cohort {

/// A range of integers, for example `std::vector<int>`.
template <class Range>
concept integer_list =
    std::ranges::sized_range<Range> && std::integral<std::ranges::range_value_t<Range>>;

/// The blocks of a buffer in the `_v` collectives, one per rank (or neighbour), in elements.
///
/// The verbs take a plain range of counts for blocks that follow each other, and a `block_list`
/// where displacements are needed: `cohort::block_list(counts, displacements)`. The numbers are
/// copied. A negative one is found when the operation starts (`errc::size_mismatch`).
class block_list {
 public:
  /// No blocks: for ranks whose list MPI does not read.
  block_list() noexcept {}
  /// Blocks that follow each other without gaps.
  template <integer_list Counts>
  explicit block_list(const Counts& counts) {
    copy(counts, counts_);
    std::size_t next = 0;
    displacements_.reserve(counts_.size());
    for (const std::size_t count : counts_) {
      displacements_.push_back(next);
      next += count;
    }
  }
  /// Blocks at stated places.
  template <integer_list Counts, integer_list Displacements>
  block_list(const Counts& counts, const Displacements& displacements) {
    copy(counts, counts_);
    copy(displacements, displacements_);
  }

  [[nodiscard]] std::span<const std::size_t> counts() const noexcept { return counts_; }
  [[nodiscard]] std::span<const std::size_t> displacements() const noexcept {
    return displacements_;
  }
  /// The elements of all blocks together.
  [[nodiscard]] std::size_t total() const noexcept {
    std::size_t sum = 0;
    for (const std::size_t count : counts_) sum += count;
    return sum;
  }
  /// How long a buffer must be; 0 for a list with a negative number, which fits none.
  [[nodiscard]] std::size_t extent() const noexcept {
    std::size_t end = 0;
    if (negative_ || counts_.size() != displacements_.size()) return end;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] != 0 && end < displacements_[i] + counts_[i]) {
        end = displacements_[i] + counts_[i];
      }
    }
    return end;
  }
  /// Whether these are `blocks` blocks that lie inside a buffer of `size` elements.
  [[nodiscard]] bool fits(std::size_t blocks, std::size_t size) const noexcept {
    if (negative_ || counts_.size() != blocks || displacements_.size() != blocks) return false;
    for (std::size_t i = 0; i < blocks; ++i) {
      if (counts_[i] == 0) continue;
      if (displacements_[i] > size || counts_[i] > size - displacements_[i]) return false;
    }
    return true;
  }
  /// A value that differs for different lists, for comparison between ranks.
  [[nodiscard]] std::int64_t digest() const noexcept {
    std::uint64_t hash = counts_.size();
    for (const std::size_t count : counts_) hash = hash * 1000003 + count;
    return static_cast<std::int64_t>(hash & (~std::uint64_t{0} >> 1U));  // never negative
  }

 private:
  template <class Range>
  void copy(const Range& from, std::vector<std::size_t>& to) {
    to.reserve(std::ranges::size(from));
    for (const auto number : from) {
      if (std::cmp_less(number, 0)) negative_ = true;
      to.push_back(static_cast<std::size_t>(number));
    }
  }

  std::vector<std::size_t> counts_;
  std::vector<std::size_t> displacements_;
  bool negative_ = false;
};

/// What the `_v` verbs take: counts alone, or a `block_list`.
template <class List>
concept block_counts =
    std::same_as<std::remove_cvref_t<List>, block_list> || integer_list<std::remove_cvref_t<List>>;

/// Stands for the buffer that is not given, where a form in place would look like another form.
struct in_place_t {
  explicit in_place_t() noexcept = default;
};
inline constexpr in_place_t in_place{};

/// Stands for the counts of what comes, where leaving them out would look like another form: the
/// ranks tell each other.
struct exchanged_counts_t {
  explicit exchanged_counts_t() noexcept = default;
};
inline constexpr exchanged_counts_t exchanged_counts{};

}  // namespace cohort
