// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One line of what a rank prints, and who is given it.
/// \file `cohort::cluster::line_assembler`: bytes in, lines out.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace cohort::cluster {

/// Which of its two outputs a rank has written to.
enum class output_stream { out, err };

/// The "rank" of what the launcher itself prints, and of what ranks print before they are
/// connected.
inline constexpr int launcher_rank = -1;

/// A line, or a part of one. Nothing of it lives longer than the call that brings it.
struct output_line {
  int rank = launcher_rank;
  output_stream stream = output_stream::out;
  std::string_view text;  ///< the bytes as they were written, without the newline
  /// The newline was there. It is not behind the parts of an overlong line but the last, nor behind
  /// the last line of a stream that ends without one: texts joined, with a newline after those that
  /// are complete, are the stream again.
  bool complete = true;
  /// Not zero: no line of the rank, but a notice that so many lines of it were dropped here.
  std::uint64_t dropped = 0;
};

/// Gets the lines of all ranks. It may block and it may throw (see output_queue). It should own all
/// that it uses: one that blocks for longer than the queue waits for it may outlive the queue.
using output_sink = std::function<void(const output_line&)>;

/// What happens when the ranks print faster than the sinks take.
enum class overflow_policy {
  drop_oldest,  ///< the oldest waiting lines are dropped, counted, and replaced by a notice
  block,        ///< the ranks wait
};

/// "out" or "err".
[[nodiscard]] constexpr std::string_view name_of(output_stream stream) noexcept {
  return stream == output_stream::out ? "out" : "err";
}

/// "3", or "launcher".
[[nodiscard]] inline std::string rank_name(int rank) {
  return rank < 0 ? std::string("launcher") : std::to_string(rank);
}

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
