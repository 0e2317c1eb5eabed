// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of `progress/engine/parts.hpp`.

#include <cohort/progress/engine/parts.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace cohort::progress {

COHORT_INLINE void source_list::append(polled_source& one) {
  const std::size_t size = size_.load(std::memory_order_relaxed);
  if (size == most) throw std::length_error("an engine has at most 16 sources");
  all_[size] = &one;
  size_.store(size + 1, std::memory_order_release);
}

COHORT_INLINE void source_list::add(polled_source& one) {
  const std::lock_guard hold(adding_);
  append(one);
}

COHORT_INLINE void source_list::add(const void* stands_for, std::unique_ptr<polled_source> one) {
  const std::lock_guard hold(adding_);
  adapters_.push_back({stands_for, std::move(one)});
  try {
    append(*adapters_.back().source);
  } catch (...) {
    adapters_.pop_back();
    throw;
  }
}

COHORT_INLINE void source_list::remove(const void* attached) noexcept {
  const std::lock_guard hold(adding_);
  const auto is_gone = [&](const polled_source* one) {
    return static_cast<const void*>(one) == attached ||
           std::any_of(adapters_.begin(), adapters_.end(), [&](const adapter& each) {
             return each.stands_for == attached && each.source.get() == one;
           });
  };
  const auto end = all_.begin() + static_cast<std::ptrdiff_t>(size_.load());
  const auto kept = std::remove_if(all_.begin(), end, is_gone);
  size_.store(static_cast<std::size_t>(kept - all_.begin()));
  std::erase_if(adapters_, [=](const adapter& one) { return one.stands_for == attached; });
}

// ---- looking -------------------------------------------------------------------------------

COHORT_INLINE std::size_t source_list::look(ready_queue& ready, unsigned& budget) {
  // One source is the usual case; with several, all are held for the looks of one call.
  const auto sources = all();  // more may come meanwhile
  const bool only_dear = sources.size() == 1 ? sources[0]->is_dear() : only_dear_pending();
  const unsigned cost = only_dear ? dear_look : 1;
  const unsigned looks = (budget + cost - 1) / cost;
  std::size_t found = 0;
  unsigned done = 0;
  if (sources.size() == 1) [[likely]] {
    polled_source& source = *sources[0];
    if (!source.begin_lap(ready)) return ready.empty() ? 0 : 1;
    for (; done < looks && found == 0; ++done) found = source.test(ready);
    source.end_lap();
  } else {
    std::size_t begun = 0;
    while (begun < sources.size()) {
      if (!sources[begun]->begin_lap(ready)) [[unlikely]] {
        while (begun > 0) sources[--begun]->end_lap();
        --budget;
        return look_at_each(ready);
      }
      ++begun;
    }
    for (; done < looks && found == 0; ++done) {
      for (polled_source* const one : sources) {
        if (done == 0 || only_dear || !one->is_dear()) found += one->test(ready);
      }
    }
    while (begun > 0) sources[--begun]->end_lap();
  }
  budget -= std::min(budget, done * cost);
  count(done, found);
  return found;
}

/// Whether something is pending, and all that is belongs to dear sources.
COHORT_INLINE bool source_list::only_dear_pending() const {
  bool any = false;
  for (const polled_source* const one : all()) {
    if (one->pending() == 0) continue;
    if (!one->is_dear()) return false;
    any = true;
  }
  return any;
}

/// One of several sources cannot be looked at here, MPI after its end: the others go on.
COHORT_INLINE std::size_t source_list::look_at_each(ready_queue& ready) {
  std::size_t found = 0;
  for (polled_source* const one : all()) {
    if (!one->begin_lap(ready)) continue;
    found += one->test(ready);
    one->end_lap();
  }
  count(1, found);
  return found == 0 && !ready.empty() ? 1 : found;
}

// ---- of all of them ------------------------------------------------------------------------

COHORT_INLINE bool source_list::only_announced() const {
  const auto sources = all();
  return std::all_of(sources.begin(), sources.end(),
                     [](polled_source* one) { return one->only_announced(); });
}

COHORT_INLINE park_result source_list::park(ready_queue& ready, bool rings) const {
  bool posted = false;
  bool found = false;
  for (polled_source* const one : all()) {
    const park_result result = one->park(ready);
    posted = posted || result != park_result::nothing;
    found = found || result == park_result::busy;
    rings = rings && result != park_result::no_bell;
  }
  if (posted && (found || !rings)) {
    unpark();
    return found ? park_result::busy : park_result::no_bell;
  }
  return posted ? park_result::quiet : park_result::nothing;
}

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
