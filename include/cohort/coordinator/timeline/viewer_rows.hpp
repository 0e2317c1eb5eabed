// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file In which row of a trace viewer a slice is shown.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace cohort::coordination::detail {

/// The rows of one phase. Slices in one row must nest or be apart, or the viewer leaves some out;
/// so those that end together are stacked, and others that overlap get rows of their own.
class viewer_rows {
 public:
  static constexpr std::size_t most = 100;
  /// Perfetto shows at most 512 slices above one another.
  static constexpr std::uint32_t most_stacked = 100;

  viewer_rows() { rows_.reserve(most); }

  /// The first row with room. The last one takes what has no room anywhere.
  std::size_t place(std::int64_t begin, std::int64_t end) noexcept {
    for (std::size_t at = 0; at < rows_.size(); ++at) {
      if (rows_[at].take(begin, end)) return at;
    }
    if (rows_.size() < most) rows_.emplace_back().take(begin, end);  // within the capacity
    return rows_.size() - 1;
  }

  /// True for a row whose name has not been written; from now on it has.
  bool needs_name(std::size_t at) noexcept { return !std::exchange(rows_[at].named, true); }
  void forget_names() noexcept {
    for (row& each : rows_) each.named = false;
  }

 private:
  struct row {
    std::int64_t free_from = 0;                                   // end of what is before the stack
    std::int64_t end = std::numeric_limits<std::int64_t>::min();  // common to all of the stack
    std::uint32_t stacked = 0;
    bool named = false;

    bool take(std::int64_t from, std::int64_t to) noexcept {
      if (from >= end) {
        free_from = end;
        end = to;
        stacked = 1;
        return true;
      }
      if (to != end || from < free_from || stacked == most_stacked) return false;
      ++stacked;
      return true;
    }
  };

  std::vector<row> rows_;
};

}  // namespace cohort::coordination::detail
