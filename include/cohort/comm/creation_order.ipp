// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/creation_order.hpp`.

#include <cohort/comm/creation_order.hpp>

namespace cohort::comm {

COHORT_INLINE creation_turn& creation_turn::of_process() {
  static creation_turn& instance = *new creation_turn;
  return instance;
}

COHORT_INLINE void creation_turn::enter() {
  const std::lock_guard hold(mutex_);
  queue_.reserve(entered_ + 1);
  ++entered_;
}

COHORT_INLINE void creation_turn::leave() noexcept {
  const std::lock_guard hold(mutex_);
  --entered_;
}

COHORT_INLINE bool creation_turn::try_take(const void* who) {
  const std::lock_guard hold(mutex_);
  if (queue_.empty()) queue_.push_back(who);
  return queue_.front() == who;
}

COHORT_INLINE void creation_turn::wait(const void* who) {
  const std::lock_guard hold(mutex_);
  queue_.push_back(who);
}

COHORT_INLINE bool creation_turn::has(const void* who) const {
  const std::lock_guard hold(mutex_);
  return !queue_.empty() && queue_.front() == who;
}

COHORT_INLINE void creation_turn::give_back(const void* who) {
  const std::lock_guard hold(mutex_);
  std::erase(queue_, who);
}

COHORT_INLINE creation_steps::step creation_steps::next(bool answer) {
  sends_.clear();
  receives_.clear();
  value_ = true;
  switch (stage_++) {
    case 0:  // who is below has entered
      add_children(receives_);
      return step::exchange;
    case 1:  // and all have
      if (!is_root()) ask_parent();
      return step::exchange;
    case 2:
      return step::try_turn;
    case 3:
      taken_ = answer;
      add_children(sends_);
      add_children(receives_);
      return step::exchange;
    case 4:
      taken_ = taken_ && answer;
      value_ = taken_;
      if (!is_root()) ask_parent();
      return step::exchange;
    case 5:
      if (!is_root()) taken_ = answer;
      value_ = taken_;
      add_children(sends_);
      return step::exchange;
    case 6:
      return taken_ ? step::make : step::give_turn;
    case 7:
      return step::find_line;
    case 8:
      if (before_ >= 0) receives_.push_back(before_);
      return step::exchange;
    case 9:
      return step::wait_turn;
    case 10:
      if (after_ >= 0) {
        sends_.push_back(after_);
      } else if (!is_root()) {
        sends_.push_back(0);
      }
      if (!is_root()) {
        receives_.push_back(parent());
      } else if (last_ != self_) {
        receives_.push_back(last_);
      }
      return step::exchange;
    case 11:
      add_children(sends_);
      return step::exchange;
    default:
      return step::make;
  }
}

COHORT_INLINE void creation_steps::add_children(std::vector<int>& to) const {
  for (int i = 1; i <= radix && radix * self_ + i < members_; ++i) {
    to.push_back(radix * self_ + i);
  }
}

COHORT_INLINE void creation_steps::ask_parent() {
  sends_.push_back(parent());
  receives_.push_back(parent());
}

}  // namespace cohort::comm
