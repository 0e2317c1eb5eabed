// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `progress/engine/sleep.hpp`.

#include <cohort/progress/engine/sleep.hpp>

namespace cohort::progress {

// ---- waking ------------------------------------------------------------------------------------

// A starter sets `poked_` and then reads the state; a lap that ends stores the state and then reads
// `poked_`. Both are sequentially consistent, so at least one of the two sees the other.
COHORT_INLINE engine_sleep::rise engine_sleep::wake() noexcept {
  poked_.store(true);
  state seen = state_.load();
  while (seen == state::idle || seen == state::napping || seen == state::parked) {
    if (!state_.compare_exchange_weak(seen, state::running)) continue;
    if (seen == state::idle) read_clock();
    return rise(*this, seen);
  }
  return rise();
}

COHORT_INLINE void engine_sleep::get_up() {
  if (timer_armed_) {
    const std::lock_guard armed(nap_mutex_);
    loop_.cancel_nap();
    timer_armed_ = false;
  }
  if (std::exchange(was_parked_, false)) sources_.unpark();
}

COHORT_INLINE bool engine_sleep::nap_is_over() {
  auto expected = state::napping;
  const std::lock_guard fallen_asleep(nap_mutex_);
  return state_.compare_exchange_strong(expected, state::running);
}

COHORT_INLINE bool engine_sleep::take_start() noexcept {
  // Reads what it resets, so that what was started before is seen by what follows.
  return poked_.load(std::memory_order_relaxed) && poked_.exchange(false);
}

// ---- falling asleep ----------------------------------------------------------------------------

COHORT_INLINE void engine_sleep::fall(state to) {
  state_.store(to);
  if (poked_.load() && state_.compare_exchange_strong(to, state::running)) loop_.defer_lap();
}

COHORT_INLINE engine_sleep::end_of_lap engine_sleep::with_work(ready_queue& ready) {
  // Where all that is pending waits for messages that a bell announces, a nap need not be short.
  if (backoff_.long_quiet(now(), options_) && bell_ != nullptr && sources_.only_announced()) {
    const park_result parked = sources_.park(ready, true);
    if (parked == park_result::busy) return end_of_lap::found;
    if (parked == park_result::quiet) {
      nap_parked(options_.longest_nap, true);
      return end_of_lap::asleep;
    }
  }
  nap(next_nap(), true);
  return end_of_lap::asleep;
}

COHORT_INLINE engine_sleep::end_of_lap engine_sleep::without_work(ready_queue& ready,
                                                                  std::uint64_t events) {
  const park_result parked = sources_.park(ready, bell_ != nullptr);
  if (parked == park_result::nothing) return end_of_lap::nothing;
  if (parked == park_result::busy) return end_of_lap::found;
  if (parked == park_result::no_bell) {
    if (has_news(events)) not_quiet(events);
    nap(next_nap(), false);
  } else if (last_looks_.load(std::memory_order_relaxed) != 0) {
    nap_parked(next_last_look(), false);
  } else if (bell_->may_miss()) {
    nap_parked(std::chrono::seconds(1), false);
  } else {
    was_parked_ = true;
    bell_->arm();
    parks_.add(1);
    fall(state::parked);
  }
  return end_of_lap::asleep;
}

/// Until the bell rings, or so long.
COHORT_INLINE void engine_sleep::nap_parked(std::chrono::nanoseconds duration, bool holds_work) {
  was_parked_ = true;
  bell_->arm();
  parks_.add(1);
  nap(duration, holds_work);
}

COHORT_INLINE std::chrono::nanoseconds engine_sleep::next_last_look() noexcept {
  const unsigned left = last_looks_.fetch_sub(1, std::memory_order_relaxed);
  std::chrono::milliseconds pause(1);
  for (unsigned past = left; past < most_last_looks; ++past) pause *= 10;
  return pause;
}

COHORT_INLINE std::chrono::nanoseconds engine_sleep::next_nap() {
  return sources_.longest_nap(backoff_.nap(now(), options_));
}

COHORT_INLINE void engine_sleep::nap(std::chrono::nanoseconds duration, bool holds_work) {
  after_nap_ = true;
  has_timer_ = true;
  const std::lock_guard falling_asleep(nap_mutex_);
  loop_.start_nap(duration, holds_work);
  timer_armed_ = true;
  fall(state::napping);
}

}  // namespace cohort::progress
