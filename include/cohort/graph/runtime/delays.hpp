// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the nodes of a rank delay, in the hope that it need not be said or that more of it
/// goes with it, and for how long.

#include <cohort/graph/runtime/scope_on_node.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <span>

namespace cohort::graph::runtime {

/// Pure but for the clock. A rank looks at the end of each turn.
template <class Any>
class delays {
 public:
  using clock = std::chrono::steady_clock;
  using scope = scope_on_node<Any>;

  /// Flushes what has waited for its time. Returns when what still waits is due.
  std::optional<clock::time_point> look(std::span<scope* const> open) {
    std::optional<clock::time_point> now;
    std::optional<clock::time_point> next;
    bool flushed = false;
    for (kind& each : kinds_) {
      const auto is_there = [&](scope* one) { return each.has_any(*one->node()); };
      if (std::any_of(open.begin(), open.end(), is_there)) {
        if (!now) now = clock::now();
        if (!each.until) each.until = *now + each.delay;
        if (*now < *each.until) {
          next = std::min(next.value_or(*each.until), *each.until);
          continue;
        }
        for (scope* const one : open) each.flush(*one->node());
        flushed = true;
      }
      each.until.reset();
    }
    return flushed ? look(open) : next;  // what is there again waits for its time
  }

 private:
  using node = machine::basic_node<Any>;
  struct kind {
    clock::duration delay;
    bool (*has_any)(const node&);
    void (*flush)(node&);
    std::optional<clock::time_point> until;
  };

  std::array<kind, 3> kinds_{
      kind{std::chrono::microseconds(200),  // want_delay [graph W1]
           [](const node& one) { return one.has_wants(); },
           [](node& one) { one.flush_wants(); },
           {}},
      kind{std::chrono::milliseconds(1),  // announce_delay [graph A2] [graph A3]
           [](const node& one) { return one.has_announcements() || one.has_comparisons(); },
           [](node& one) {
             one.flush_announcements();
             one.flush_comparisons();
           },
           {}},
      kind{std::chrono::microseconds(200),  // wave_delay [graph T3]
           [](const node& one) { return one.has_contribution(); },
           [](node& one) { one.flush_contribution(); },
           {}}};
};

}  // namespace cohort::graph::runtime
