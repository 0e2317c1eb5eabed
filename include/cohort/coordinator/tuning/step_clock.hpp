// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Finds the steps of a program in what it runs, and how long each keeps the coordinator
/// busy.

#include <cohort/protocol/signature.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// A step is what runs from one election of a name to its next. The name is the largest of those
/// that come again and again, a gradient say. A program that marks its steps is believed instead.
///
/// A step has the time in which something was under way, so that neither a pause of the program nor
/// work between two steps counts. Steps are alike if as many bytes run in them as in the one
/// before, to an eighth; the others are not told of.
///
/// Moments are nanoseconds of any clock. *Cost*: a look into a table for each election.
class step_clock {
 public:
  /// An operation is elected. Returns the time of a step that ends here.
  std::optional<double> elected(protocol::name_index name, std::uint64_t bytes, std::uint64_t now) {
    if (!busy_) {
      busy_ = true;
      since_ = now;
    }
    std::optional<double> ended;
    if (!marks_) ended = look_for_step(name, bytes, now);
    bytes_ += bytes;
    return ended;
  }
  /// Nothing is under way.
  void idle(std::uint64_t now) {
    if (!busy_) return;
    time_ += now - since_;
    busy_ = false;
  }
  /// The program says that a step ends.
  std::optional<double> marked(std::uint64_t now) {
    if (!std::exchange(marks_, true)) {
      names_.clear();
      begin(now);
      return std::nullopt;
    }
    return end(now);
  }
  /// Whether a step has ended that is not like the one before.
  [[nodiscard]] bool take_unlike() noexcept { return std::exchange(unlike_, false); }
  /// How long the step under way has been busy.
  [[nodiscard]] double so_far(std::uint64_t now) const {
    return static_cast<double>(time_ + (busy_ ? now - since_ : 0));
  }
  /// Names have other numbers now.
  void forget_names() {
    names_.clear();
    anchor_ = protocol::none;
  }

 private:
  static constexpr std::uint32_t lost = 64;  // so often others come before a name is given up

  struct seen {
    std::uint32_t step = 0;   // the number of the step in which it was elected last, or 0
    std::uint32_t times = 0;  // in that step
  };

  std::optional<double> look_for_step(protocol::name_index name, std::uint64_t bytes,
                                      std::uint64_t now) {
    if (name == anchor_) {
      anchor_bytes_ = bytes;
      return end(now);
    }
    if (name >= names_.size()) names_.resize(name + std::size_t{1});
    seen& one = names_[name];
    const bool again = one.step != 0;
    one.times = one.step == step_ ? one.times + 1 : 1;
    one.step = step_;
    const bool better = anchor_ == protocol::none || bytes > anchor_bytes_ || one.times == lost;
    if (again && better) {
      anchor_ = name;
      anchor_bytes_ = bytes;
      begin(now);
    }
    return std::nullopt;
  }
  void begin(std::uint64_t now) {
    ++step_;
    time_ = 0;
    since_ = now;
    bytes_ = 0;
    last_bytes_ = none_yet;
  }
  std::optional<double> end(std::uint64_t now) {
    const double time = so_far(now);
    const std::uint64_t bytes = bytes_;
    const std::uint64_t last = last_bytes_;
    begin(now);
    last_bytes_ = bytes;
    const std::uint64_t apart = bytes > last ? bytes - last : last - bytes;
    unlike_ = last != none_yet && apart > std::max(bytes, last) / 8;
    if (last == none_yet || unlike_) return std::nullopt;
    return time;
  }

  static constexpr std::uint64_t none_yet = UINT64_MAX;

  bool marks_ = false;
  bool busy_ = false;
  bool unlike_ = false;
  std::uint64_t since_ = 0;  // busy since, or since the step began
  std::uint64_t time_ = 0;   // of this step, before `since_`
  std::uint64_t bytes_ = 0;  // of this step
  std::uint64_t last_bytes_ = none_yet;
  std::uint32_t step_ = 1;
  protocol::name_index anchor_ = protocol::none;
  std::uint64_t anchor_bytes_ = 0;
  std::vector<seen> names_;
};

}  // namespace cohort::coordination
