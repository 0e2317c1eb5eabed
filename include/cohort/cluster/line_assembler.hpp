// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::cluster::line_assembler`: bytes in, lines out.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace cohort::cluster {

/// Longer lines are cut into parts of this size.
inline constexpr std::size_t default_longest_line = 64 * 1024;

/// Makes lines of one stream, however its bytes arrive. Keeps at most one line of `longest` bytes.
class line_assembler {
 public:
  /// A bound below one byte counts as one.
  explicit line_assembler(std::size_t longest = default_longest_line)
      : longest_(std::max<std::size_t>(longest, 1)) {}

  /// Calls `deliver(std::string_view text, bool complete)` for each line that is finished by
  /// `bytes`, and for each part of one that has reached the bound. A line whose length is exactly
  /// the bound is whole.
  template <class Deliver>
  void push(std::string_view bytes, Deliver&& deliver) {
    while (!bytes.empty()) {
      const std::size_t room = longest_ - partial_.size();
      // One byte more than fits: it may be the newline.
      const std::size_t newline = bytes.substr(0, room + 1).find('\n');
      if (newline != std::string_view::npos) {
        give(bytes.substr(0, newline), true, deliver);
        bytes.remove_prefix(newline + 1);
      } else if (bytes.size() <= room) {
        partial_ += bytes;
        return;
      } else {
        give(bytes.substr(0, room), false, deliver);
        bytes.remove_prefix(room);
      }
    }
  }

  /// The stream has ended: delivers what came after the last newline, if anything did.
  template <class Deliver>
  void finish(Deliver&& deliver) {
    if (!partial_.empty()) give({}, false, deliver);
  }

 private:
  /// Delivers what is kept and `more` as one text; copies only if something is kept.
  template <class Deliver>
  void give(std::string_view more, bool complete, Deliver& deliver) {
    if (partial_.empty()) {
      deliver(more, complete);
      return;
    }
    partial_ += more;
    const std::string text = std::move(partial_);  // moved first: `deliver` may throw
    partial_.clear();
    deliver(std::string_view(text), complete);
  }

  std::size_t longest_;
  std::string partial_;
};

}  // namespace cohort::cluster
