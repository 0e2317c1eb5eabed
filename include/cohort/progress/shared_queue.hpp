// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A list of finished operations that several threads use.

#include <cohort/progress/operation.hpp>

#include <atomic>
#include <mutex>

namespace cohort::progress {

/// A list that any thread adds to, and one thread at a time takes from.
class shared_queue {
 public:
  [[nodiscard]] bool has_any() const noexcept { return has_any_.load(std::memory_order_acquire); }
  void push(operation* op) {
    const std::lock_guard hold(mutex_);
    all_.push(op);
    has_any_.store(true, std::memory_order_release);
  }
  void append(ready_queue& others) {
    const std::lock_guard hold(mutex_);
    all_.append(others);
    has_any_.store(true, std::memory_order_release);
  }
  void move_to(ready_queue& end_of) {
    const std::lock_guard hold(mutex_);
    has_any_.store(false, std::memory_order_relaxed);
    end_of.append(all_);
  }

 private:
  std::mutex mutex_;
  ready_queue all_;
  std::atomic<bool> has_any_{false};
};

}  // namespace cohort::progress
