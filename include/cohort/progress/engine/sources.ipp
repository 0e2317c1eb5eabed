// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `progress/engine/sources.hpp`.

#include <cohort/progress/engine/sources.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace cohort::progress {

COHORT_INLINE void source_list::add(polled_source& one) {
  const std::lock_guard hold(adding_);
  const std::size_t size = size_.load(std::memory_order_relaxed);
  if (size == most) throw std::length_error("an engine has at most 16 sources");
  all_[size] = &one;
  size_.store(size + 1, std::memory_order_release);
}

COHORT_INLINE void source_list::add(const void* stands_for, std::unique_ptr<polled_source> one) {
  polled_source& source = *one;
  {
    const std::lock_guard hold(adding_);
    adapters_.push_back({stands_for, std::move(one)});
  }
  add(source);
}

COHORT_INLINE void source_list::remove(const void* attached) noexcept {
  const std::lock_guard hold(adding_);
  const auto is_of = [=](const adapter& one) { return one.stands_for == attached; };
  const auto found = std::find_if(adapters_.begin(), adapters_.end(), is_of);
  const void* const gone = found == adapters_.end() ? attached : found->source.get();
  const auto end = all_.begin() + static_cast<std::ptrdiff_t>(size_.load());
  const auto kept = std::remove_if(all_.begin(), end, [=](const void* one) { return one == gone; });
  size_.store(static_cast<std::size_t>(kept - all_.begin()));
  if (found != adapters_.end()) adapters_.erase(found);
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
  tests_.add(done);
  completions_.add(found);
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
  tests_.add(1);
  completions_.add(found);
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

}  // namespace cohort::progress
