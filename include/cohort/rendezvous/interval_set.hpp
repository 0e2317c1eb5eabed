// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A set of numbers that is small where they follow each other.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>

namespace cohort::meeting {

/// Numbers as intervals: one entry for numbers that came in order, whatever their count.
template <class Number>
class interval_set {
 public:
  [[nodiscard]] bool contains(Number number) const noexcept {
    auto after = last_by_first_.upper_bound(number);
    return after != last_by_first_.begin() && std::prev(after)->second >= number;
  }

  /// False if it was there.
  bool insert(Number number) {
    if (!last_by_first_.empty()) {  // the next number is the usual case
      Number& last = std::prev(last_by_first_.end())->second;
      if (number > last && number - 1 == last) {
        last = number;
        return true;
      }
    }
    auto after = last_by_first_.upper_bound(number);
    const bool has_before = after != last_by_first_.begin();
    const auto before = has_before ? std::prev(after) : after;
    if (has_before && before->second >= number) return false;
    const bool joins_before = has_before && before->second + 1 == number;
    const bool joins_after = after != last_by_first_.end() && number + 1 == after->first;
    if (joins_before) {
      before->second = joins_after ? after->second : number;
      if (joins_after) last_by_first_.erase(after);
    } else if (joins_after) {
      const Number last = after->second;
      last_by_first_.emplace_hint(last_by_first_.erase(after), number, last);
    } else {
      last_by_first_.emplace_hint(after, number, number);
    }
    return true;
  }

  /// How many intervals: what the set costs.
  [[nodiscard]] std::size_t intervals() const noexcept { return last_by_first_.size(); }

 private:
  std::map<Number, Number> last_by_first_;
};

}  // namespace cohort::meeting
