// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A rank that gives up where nobody decides. [protocol W4]

#include <cohort/coordinator/data/stand_in.hpp>
#include <cohort/coordinator/log/submissions.hpp>
#include <cohort/coordinator/sets/set_view.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/log.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace cohort::coordination {

template <class Any>
class negotiation;

/// Watches how long what this rank has withdrawn waits for the decision, and leaves at the end.
template <class Any>
class decision_watch {
 public:
  explicit decision_watch(negotiation<Any>& log) noexcept : log_(log) {}
  void watch(clock::time_point at);

 private:
  void give_up();

  negotiation<Any>& log_;
  clock::time_point last_tick_{};
  clock::time_point asked_{};  // when the parent was asked for a sign of life
};

// Nobody decides, because a rank between here and the root is stopped or computes. Only time in
// which this rank looked for messages counts: after a long handler they may be there already.
// [protocol W4]
template <class Any>
void decision_watch<Any>::watch(clock::time_point at) {
  const auto step = std::min<std::chrono::nanoseconds>(at - std::exchange(last_tick_, at),
                                                       std::chrono::milliseconds(100));
  if (log_.node.shape().is_root()) return;
  std::chrono::nanoseconds longest{0};
  log_.tasks.for_each([&](task& each) {
    if (!each.withdrawn || each.started || log_.sets.is_between(each)) return;
    each.undecided += step;
    longest = std::max(longest, each.undecided);
  });
  if (longest > log_.options.decision_timeout / 2 && asked_ + log_.options.decision_timeout < at) {
    asked_ = at;
    log_.neighbours.ask_parent();
    log_.touch();
  }
  if (longest > log_.options.decision_timeout) give_up();
}

template <class Any>
void decision_watch<Any>::give_up() {
  const int parent = log_.node.shape().parent();
  const bool answers = log_.neighbours.answered() >= asked_;
  const std::string text =
      ": no decision within " +
      std::to_string(
          std::chrono::duration_cast<std::chrono::milliseconds>(log_.options.decision_timeout)
              .count()) +
      " ms; rank " + std::to_string(parent) +
      (answers ? ", this rank's parent, answers, so it is a rank beyond it that does not"
               : ", this rank's parent, does not answer");
  stall_facts facts;
  if (!answers) facts.silent.push_back(parent);
  // What is elected all the same needs this rank's data, and the buffers are the caller's.
  log_.tasks.for_each([&](task& each) {
    if (each.started) return;
    std::string what = "join";
    if (each.name == protocol::none) {
      each.view->joining = nullptr;
    } else {
      what = std::string(each.verb()) + " '" + std::string(log_.tasks.given_name(each)) + "'";
      // A set between its steps is not confirmed: it ends everywhere when this rank has left.
      if (!log_.sets.forget(each)) {
        log_.node.replace_token(each.operation_ref,
                                reinterpret_cast<std::uint64_t>(stand_in_for(log_, each)));
      }
    }
    each.fail(std::make_exception_ptr(
        deadline_error(facts, "rank " + std::to_string(log_.rank) + ": " + what + text)));
    log_.tasks.complete(each);
  });
  log::write(log::level::error,
             "rank " + std::to_string(log_.rank) + ": coordinator" + text + "; this rank leaves");
  set_view<Any>& whole = log_.sets.whole();
  whole.left = true;
  whole.leave_until = clock::now() + log_.options.leave_deadline;
  log_.node.give_up();
  log_.touch();
}

}  // namespace cohort::coordination
