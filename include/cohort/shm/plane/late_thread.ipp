// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of shm/plane/late_thread.hpp.

#include <cohort/shm/plane/late_thread.hpp>

#include <algorithm>

namespace cohort::shm::detail {

COHORT_INLINE void late_thread::stop() noexcept {
  {
    const std::lock_guard hold(mutex_);
    state_ = state::stopped;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

COHORT_INLINE void late_thread::rouse() noexcept {
  const std::lock_guard hold(mutex_);
  if (state_ == state::stopped) return;
  const bool is_first = state_.exchange(state::awake) == state::none;
  try {
    if (is_first) thread_ = std::thread([this] { run(); });
  } catch (...) {  // the system has no more threads, or no memory
  }
  changed_.notify_all();
}

COHORT_INLINE void late_thread::run() {
  constexpr unsigned periods_until_sleep = 100;
  std::unique_lock hold(mutex_);
  for (unsigned quiet = 0; state_ != state::stopped;) {
    const std::uint64_t before = looks();
    if (quiet < periods_until_sleep) {
      changed_.wait_for(hold, period, [this] { return state_ == state::stopped; });
    } else {
      {  // Who adds to what is pending after this sees that it sleeps.
        const std::lock_guard planes(planes_.mutex);
        if (planes_.pending.load(std::memory_order_relaxed) == 0) state_ = state::asleep;
      }
      changed_.wait(hold, [this] { return state_ != state::asleep; });
      quiet = 0;
      continue;
    }
    const bool has_work = planes_.pending.load() != 0;
    quiet = has_work ? 0 : quiet + 1;
    if (!has_work || looks() != before) continue;
    hold.unlock();
    help(before);
    hold.lock();
  }
}

COHORT_INLINE void late_thread::help(std::uint64_t looks_before) {
  constexpr std::chrono::microseconds shortest(100);
  constexpr std::chrono::microseconds longest(2000);
  std::chrono::microseconds nap = shortest;
  while (looks() == looks_before && planes_.pending.load() != 0 && state_ != state::stopped) {
    unsigned advanced = 0;
    {
      const std::lock_guard hold(planes_.mutex);
      advanced = planes_.advance(true);
    }
    nap = advanced != 0 ? shortest : std::min(2 * nap, longest);
    if (advanced == 0) std::this_thread::sleep_for(nap);
  }
}

}  // namespace cohort::shm::detail
