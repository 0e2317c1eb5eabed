// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What is done at the looks and ticks of a request source besides asking MPI.

#include <cohort/progress/engine.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace cohort::comm {

/// Something to be done at the next look, with the source locked: what was submitted since the last
/// one leaves then in one message.
class look_hook {
 public:
  look_hook(const look_hook&) = delete;
  look_hook& operator=(const look_hook&) = delete;
  /// Returns how many operations it has handed to the engine as complete.
  virtual std::size_t at_look() = 0;
  /// Now and then while something is pending, if it watches.
  virtual void at_tick(progress::engine::clock::time_point) {}
  /// For reports, if it watches: what somebody waits for here, a line for each as
  /// `"  rank 1: all_reduce 'loss', pending for 12 ms\n"`. With the source locked.
  virtual void list_waiting(std::string&, progress::engine::clock::time_point) {}

 protected:
  look_hook() noexcept {}
  virtual ~look_hook() = default;

 private:
  friend class look_hooks;
  look_hook* next_ = nullptr;
  bool waits_ = false;
};

/// The hooks of one source. Everything with the source locked.
class look_hooks {
 public:
  [[nodiscard]] bool any_due() const noexcept { return first_ != nullptr; }
  /// For the next look, once. False if it waits for that already.
  bool add(look_hook& hook) noexcept {
    if (std::exchange(hook.waits_, true)) return false;
    hook.next_ = nullptr;
    (first_ == nullptr ? first_ : last_->next_) = &hook;
    last_ = &hook;
    return true;
  }
  /// Calls those that wait; what they add waits for the next time. `called()` before each.
  template <class Called>
  std::size_t run(Called called) {
    std::size_t done = 0;
    last_due_ = last_;
    while (first_ != nullptr && last_due_ != nullptr) {
      look_hook* hook = first_;
      first_ = hook->next_;
      hook->waits_ = false;
      called();
      if (hook == last_due_) last_due_ = nullptr;
      done += hook->at_look();
    }
    return done;
  }
  /// Neither at a look nor at a tick any more. True if it waited for a look.
  bool forget(look_hook& hook) noexcept {
    std::erase(watching_, &hook);
    if (!hook.waits_) return false;
    look_hook* before = nullptr;
    for (look_hook* at = first_; at != &hook; at = at->next_) before = at;
    (before == nullptr ? first_ : before->next_) = hook.next_;
    if (last_ == &hook) last_ = before;
    if (last_due_ == &hook) last_due_ = before;
    hook.waits_ = false;
    return true;
  }
  void forget_due() noexcept {
    for (; first_ != nullptr; first_ = first_->next_) first_->waits_ = false;
  }

  void watch(look_hook& hook) { watching_.push_back(&hook); }
  void tick(progress::engine::clock::time_point now) {
    for (std::size_t i = 0; i < watching_.size(); ++i) watching_[i]->at_tick(now);
  }
  void list_waiting(std::string& text, progress::engine::clock::time_point now) {
    for (look_hook* each : watching_) each->list_waiting(text, now);
  }

 private:
  look_hook* first_ = nullptr;  // in order of registration
  look_hook* last_ = nullptr;
  look_hook* last_due_ = nullptr;  // of those that this look calls
  std::vector<look_hook*> watching_;
};

}  // namespace cohort::comm
