// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One line of what a rank prints, and who is given it.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

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

}  // namespace cohort::cluster
