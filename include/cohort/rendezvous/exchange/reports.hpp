// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a rendezvous tells of itself: who waits in it, and what is left.

#include <cohort/core/log.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/rendezvous/node/node.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace cohort::meeting {

/// Who waits here, for a value, for the end of a step or for the close of all, and of whose age
/// `wanted` says true, the first of them; a line break and a line each.
template <class Node, class Predicate>
[[nodiscard]] std::string who_waits(const Node& of, const receiver_list& closers,
                                    progress::engine::clock::time_point now, Predicate wanted) {
  constexpr std::size_t most = 20;
  std::string lines;
  std::size_t count = 0;
  const auto add = [&](receiver& one, auto text) {
    if (!wanted(one.age) || ++count > most) return;
    lines += "\n  rank " + std::to_string(of.rank()) + ": rendezvous ";
    lines += text() + ", " + one.age.text(now);
  };
  of.for_each_waiting([&](const step_state& step, const rendezvous_key* key, receiver& one) {
    add(one, [&] {
      std::string text = key == nullptr ? "drained" : "recv '" + to_string(*key) + "'";
      text += " of step " + std::to_string(step.id);
      if (key != nullptr) text += " from rank " + std::to_string(key->source);
      return text;
    });
  });
  closers.for_each([&](receiver& one) { add(one, [] { return std::string("close"); }); });
  if (count > most) lines += "\n  and " + std::to_string(count - most) + " more";
  return lines;
}

/// `what` has happened with these values.
template <class Any = void>
void warn_of_leaks(int rank, const std::vector<leaked_value>& leaks, const char* what) {
  if (leaks.empty()) return;
  constexpr std::size_t most = 20;
  std::string text = "rank " + std::to_string(rank) + ": rendezvous " + what + ":";
  for (std::size_t i = 0; i < std::min(leaks.size(), most); ++i) {
    text += "\n  step " + std::to_string(leaks[i].step);
    text += ", '" + to_string(leaks[i].key) + "': ";
    text += std::to_string(leaks[i].values) + " of " + std::to_string(leaks[i].bytes) + " bytes";
  }
  if (leaks.size() > most) text += "\n  and " + std::to_string(leaks.size() - most) + " keys more";
  log::write(log::level::warning, text);
}

/// That receives wait in a rendezvous that was never initialised, and ends.
template <class Node>
void warn_of_waiting(const Node& of) {
  std::string waiting;
  for (const step_id id : of.steps()) {
    for (const waiting_key& one : of.look_up(id)->local.list()) {
      if (one.receives == 0) continue;
      waiting += "\n  step " + std::to_string(id);
      waiting += ", '" + to_string(one.key) + "'";
    }
  }
  if (waiting.empty()) return;
  log::write(log::level::warning,
             "a rendezvous ends that was never initialised; waiting were:" + waiting);
}

/// Cleans up the steps that have passed their time to live.
class step_sweep {
 public:
  using clock = progress::engine::clock;

  /// Zero: none does.
  explicit step_sweep(std::chrono::nanoseconds ttl) : ttl_(ttl) {}

  [[nodiscard]] bool is_on() const noexcept { return ttl_ > ttl_.zero(); }
  /// Now, or, without `at_once`, if the last one is some time ago. Says which values that loses.
  template <class Node>
  void sweep(Node& of, clock::time_point now, bool at_once = false) {
    if (!is_on() || (!at_once && now - last_ < ttl_ / 4)) return;
    last_ = now;
    for (const step_id id : of.steps()) {
      step_state& one = *of.look_up(id);
      const auto used = one.last_use.load(std::memory_order_relaxed);
      if (used == 0) {  // made by another rank's message
        one.last_use.store(now.time_since_epoch().count(), std::memory_order_relaxed);
        continue;
      }
      const clock::time_point since{clock::duration(used)};
      if (one.leases.load() != 0 || now - since <= ttl_ || is_waited_in(one)) continue;
      warn_of_leaks(of.rank(), Node::leaks_of(one),
                    "has passed its time to live with values that nobody received");
      of.cleanup(id);
    }
  }

 private:
  [[nodiscard]] static bool is_waited_in(const step_state& one) {
    bool waits = !one.drains.empty();
    one.local.for_each_waiting([&](const rendezvous_key&, const receiver&) { waits = true; });
    for (const auto& [key, channel] : one.out) waits = waits || !channel.requests.empty();
    return waits;
  }

  std::chrono::nanoseconds ttl_;
  clock::time_point last_{};
};

}  // namespace cohort::meeting
