// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `progress/engine.hpp`: laps, naps, parking and the end.

#include <cohort/progress/detail/asio_loop.ipp>
#include <cohort/progress/engine.hpp>

namespace cohort::progress {

template <std::derived_from<asio::execution_context> Context>
engine::engine(Context& context)
    : asio::execution_context::service(context),
      io_(static_cast<asio::io_context&>(context)),
      loop_(std::make_unique<detail::asio_loop<engine, Context>>(context, *this)) {
  in_flight_.attach(this);
}

struct engine::lap_scope {
  explicit lap_scope(engine* self) noexcept : outer(lapping_) { lapping_ = self; }
  ~lap_scope() { lapping_ = outer; }
  lap_scope(const lap_scope&) = delete;
  engine* outer;
};

// ---- called from anywhere ------------------------------------------------------------------

COHORT_INLINE void engine::complete(operation* op) {
  op->settle();
  if (lapping_ == this) {
    ready_.push(op);
    return;
  }
  {
    const std::lock_guard hold(handed_in_mutex_);
    handed_in_.push(op);
  }
  has_handed_in_.store(true, std::memory_order_release);
  wake();
}

// A starter sets `poked_` and then reads the state; a lap that ends stores the state and then reads
// `poked_`. Both are sequentially consistent, so at least one of the two sees the other.
COHORT_INLINE void engine::wake() {
  poked_.store(true);
  state seen = state_.load();
  while (seen == state::idle || seen == state::napping || seen == state::parked) {
    if (state_.compare_exchange_weak(seen, state::running)) {
      if (seen == state::idle) now_.store(clock::now().time_since_epoch().count());
      try {
        loop_->post_lap();
      } catch (...) {
        state_.store(seen);  // whoever wakes it next tries again
        throw;
      }
      return;
    }
  }
}

COHORT_INLINE void engine::look() {
  if (lapping_ == this) {
    unsigned once = 1;
    events_ += look_into(ready_, once);
    return;
  }
  ready_queue found;
  unsigned once = 1;
  look_into(found, once);
  if (found.empty()) return;
  {
    const std::lock_guard hold(handed_in_mutex_);
    handed_in_.append(found);
  }
  has_handed_in_.store(true, std::memory_order_release);
  wake();
}

COHORT_INLINE std::chrono::nanoseconds engine::drain_bound() const noexcept {
  if (process::failed.load(std::memory_order_relaxed) || std::uncaught_exceptions() > 0) {
    return process::failure_time_left(options_.drain_after_failure);
  }
  return options_.drain;
}

COHORT_INLINE bool engine::leave(std::chrono::nanoseconds bound) {
  for (polled_source* const source : sources_) source->leave();
  bool all = drive_until([this] { return pending() == 0; }, bound);
  if (!all) {
    for (polled_source* const source : sources_) source->end();
    all = pending() == 0;
  }
  if (!all) {
    std::string text;
    describe(text);
    process::add_leftovers(text);
    for (polled_source* const source : sources_) source->abandon();
  }
  return all;
}

COHORT_INLINE std::size_t engine::pending() const {
  std::size_t sum = 0;
  for (polled_source* const source : sources_) sum += source->pending();
  return sum;
}

COHORT_INLINE std::size_t engine::bytes() const {
  std::size_t sum = 0;
  for (polled_source* const source : sources_) sum += source->bytes();
  return sum;
}

COHORT_INLINE void engine::describe(std::string& text) const {
  for (polled_source* const source : sources_) source->describe(text);
}

COHORT_INLINE engine_statistics engine::statistics() const noexcept {
  return {laps_.get(), tests_.get(), completions_.get(), parks_.get(),
          rings_.load(std::memory_order_relaxed)};
}

/// Looks until something is found or the budget is spent.
COHORT_INLINE std::size_t engine::look_into(ready_queue& ready, unsigned& budget) {
  // One source is the usual case; with several, all are held for the looks of one call.
  std::size_t begun = 0;
  std::size_t found = 0;
  unsigned done = 0;
  const std::size_t sources = sources_.size();  // more may come meanwhile
  const bool only_dear = sources == 1 ? sources_[0]->is_dear() : only_dear_pending();
  const unsigned cost = only_dear ? dear_look : 1;
  const unsigned looks = (budget + cost - 1) / cost;
  if (sources == 1) [[likely]] {
    polled_source* const source = sources_[0];
    if (!source->begin_lap(ready)) return ready.empty() ? 0 : 1;
    for (; done < looks && found == 0; ++done) found = source->test(ready);
    source->end_lap();
  } else {
    while (begun < sources) {
      if (!sources_[begun]->begin_lap(ready)) [[unlikely]] {
        while (begun > 0) sources_[--begun]->end_lap();
        --budget;
        return look_at_each(ready);
      }
      ++begun;
    }
    for (; done < looks && found == 0; ++done) {
      for (std::size_t i = 0; i < sources; ++i) {
        if (done == 0 || only_dear || !sources_[i]->is_dear()) found += sources_[i]->test(ready);
      }
    }
    while (begun > 0) sources_[--begun]->end_lap();
  }
  budget -= std::min(budget, done * cost);
  tests_.add(done);
  completions_.add(found);
  return found;
}

/// Whether something is pending, and all that is belongs to dear sources.
COHORT_INLINE bool engine::only_dear_pending() const {
  bool any = false;
  for (polled_source* const source : sources_) {
    if (source->pending() == 0) continue;
    if (!source->is_dear()) return false;
    any = true;
  }
  return any;
}

/// One of several sources cannot be looked at here, MPI after its end: the others go on.
COHORT_INLINE std::size_t engine::look_at_each(ready_queue& ready) {
  std::size_t found = 0;
  for (polled_source* const source : sources_) {
    if (!source->begin_lap(ready)) continue;
    found += source->test(ready);
    source->end_lap();
  }
  tests_.add(1);
  completions_.add(found);
  return found == 0 && !ready.empty() ? 1 : found;
}

// ---- the lap -------------------------------------------------------------------------------

// 1. Undo sleep: disarm the timer, clear the parked flags.
// 2. Rounds of looks; what a look finds is delivered before the next look.
// 3. A long round ends with one nested `poll_one()`, so nobody else starves.
// 4. Decide: another lap at once, a nap, parked, or nothing.
// A handler that throws leaves through here: the rest stays queued and another lap is posted.
COHORT_INLINE void engine::lap() {
  const lap_scope scope(this);
  laps_.add(1);
  if (!is_at_home()) home_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  process::failure_over();  // an exception that was on its way has arrived
  if (timer_armed_) {
    const std::lock_guard armed(nap_mutex_);
    loop_->cancel_nap();
    timer_armed_ = false;
  }
  if (was_parked_) {
    was_parked_ = false;
    for (polled_source* const source : sources_) source->unpark();
  }
  try {
    rounds();
  } catch (...) {
    again();
    throw;
  }
  end_of_lap();
}

COHORT_INLINE void engine::rounds() {
  if (beside_others_) {
    round(1);
    if (!ready_.empty()) return;
    saw_others_ = io_.poll_one() != 0;
    if ((++laps_beside_others_ & 7U) == 0 || !saw_others_) tick();
    return;
  }
  if (after_nap_ || short_laps_ > 0) {
    if (short_laps_ > 0) --short_laps_;
    round(options_.short_lap);
    // The clock costs as much as two looks, so short laps read it now and then only.
    if (after_nap_ || (short_laps_ & 7U) == 0) tick();
    after_nap_ = false;
    return;
  }
  constexpr int most_rounds = 16;  // then the loop's own turn, for `run_for` and other threads
  for (int n = 0; n < most_rounds; ++n) {
    const auto before = coarse_now();
    const std::uint64_t events_before = events_;
    const unsigned stretch = std::min(alone_ / 16, 3U);  // nobody else for long: look longer
    const bool more = round(long_budget_ << stretch);
    tick();
    // With operations still ready the loop has its turn without the nested call.
    if (!more || !ready_.empty()) return;
    if (events_ == events_before) {  // only looks: this is what they cost
      const auto cost = coarse_now() - before;
      const auto allowed = options_.long_lap_time * (1U << stretch);
      if (n > 0 && cost > allowed) long_budget_ = std::max(long_budget_ / 2, 1U);
      if (n > 0 && cost * 2 < allowed) {
        long_budget_ = std::min(long_budget_ * 2, options_.long_lap);
      }
      if (!backoff_.spins(coarse_now(), bytes(), oversubscribed_, options_)) return;
    } else {
      backoff_.reset(coarse_now(), options_);
      seen_events_ = events_;
    }
    if (io_.poll_one() != 0) {
      short_laps_ = options_.short_laps;
      alone_ = 0;
      return;
    }
    ++alone_;
    if (io_.stopped()) return;
  }
}

/// Looks `budget` times, delivering on the way. False when nothing is left to look at. True also
/// when handlers had their share of the time, and then more may be ready.
COHORT_INLINE bool engine::round(unsigned budget) {
  unsigned deliveries = 0;
  for (;;) {
    if (has_handed_in_.load(std::memory_order_relaxed)) take_handed_in();
    while (!ready_.empty()) {
      ready_.pop()->deliver();
      // A chain of handlers that compute must not keep timers and sockets waiting for long.
      if (++deliveries % 16 == 0) {
        const auto before = coarse_now();
        tick();
        if (coarse_now() - before > options_.long_lap_time || io_.stopped()) return true;
      }
    }
    if (has_handed_in_.load(std::memory_order_relaxed)) continue;
    if (!wants_looks()) return false;
    if (budget == 0) return true;
    const unsigned before = budget;
    events_ += look_into(ready_, budget);
    if (budget == before && ready_.empty()) return false;
  }
}

COHORT_INLINE void engine::take_handed_in() {
  const std::lock_guard hold(handed_in_mutex_);
  has_handed_in_.store(false, std::memory_order_relaxed);
  ready_.append(handed_in_);
}

COHORT_INLINE void engine::tick() {
  const auto now = clock::now();
  now_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  if (now - last_tick_ < tick_period) return;
  last_tick_ = now;
  for (polled_source* const source : sources_) source->tick(now);
}

COHORT_INLINE void engine::end_of_lap() {
  if (poked_.load(std::memory_order_relaxed)) {
    poked_.exchange(false);  // reads what it resets, so that what was started before is seen below
    ++events_;
  }
  if (!ready_.empty() || has_handed_in_.load(std::memory_order_acquire)) return again();
  if (!wants_looks()) {
    if (sleep_without_work()) return;
    if (!ready_.empty() || wants_looks()) return again();
    state_.store(state::idle);
    auto expected = state::idle;
    if (poked_.load() && state_.compare_exchange_strong(expected, state::running)) again();
    return;
  }
  if (events_ != seen_events_) {
    seen_events_ = events_;
    beside_others_ = false;
    backoff_.reset(coarse_now(), options_);
    return again();
  }
  if (backoff_.spins(coarse_now(), bytes(), oversubscribed_, options_)) return again();
  if (attends_.exchange(false, std::memory_order_relaxed)) return again();
  // With the timer every turn of the loop polls epoll. So it is not made while other handlers
  // follow one another: then a lap is one look, and lets one of them run.
  if (!has_napped_ && (!beside_others_ || saw_others_)) {
    beside_others_ = true;
    return again();
  }
  beside_others_ = false;
  if (backoff_.long_quiet(coarse_now(), options_) && nap_until_rung()) return;
  nap(true);
}

/// With control receives posted and nothing else: sleeps until the doorbell rings or, where there
/// is none, naps; neither keeps `io.run()` from returning. False: there is nothing to be woken for.
COHORT_INLINE bool engine::sleep_without_work() {
  const park_result parked = park();
  if (parked == park_result::nothing) return false;
  if (parked != park_result::quiet) {
    if (parked == park_result::busy) {
      ++events_;
      again();
    } else if (events_ != seen_events_) {
      seen_events_ = events_;
      backoff_.reset(coarse_now(), options_);
      nap(false);
    } else {
      nap(false);
    }
    return true;
  }
  if (last_looks_.load(std::memory_order_relaxed) != 0) {
    nap_parked(false, next_last_look());
    return true;
  }
  if (wake_up_->may_miss()) {
    nap_parked(false, std::chrono::seconds(1));
    return true;
  }
  was_parked_ = true;
  wake_up_->arm();
  parks_.add(1);
  state_.store(state::parked);
  auto expected = state::parked;
  if (poked_.load() && state_.compare_exchange_strong(expected, state::running)) again();
  return true;
}

/// All sources. They are parked if the answer is `quiet`.
COHORT_INLINE park_result engine::park() {
  bool posted = false;
  bool found = false;
  bool rings = wake_up_ != nullptr;
  for (polled_source* const source : sources_) {
    const park_result result = source->park(ready_);
    posted = posted || result != park_result::nothing;
    found = found || result == park_result::busy;
    rings = rings && result != park_result::no_bell;
  }
  if (posted && (found || !rings)) {
    for (polled_source* const source : sources_) source->unpark();
    return found ? park_result::busy : park_result::no_bell;
  }
  return posted ? park_result::quiet : park_result::nothing;
}

/// Where all that is pending waits for messages that a doorbell announces, a nap need not be short.
COHORT_INLINE bool engine::nap_until_rung() {
  if (wake_up_ == nullptr) return false;
  for (polled_source* const source : sources_) {
    if (!source->only_announced()) return false;
  }
  const park_result parked = park();
  if (parked == park_result::busy) {
    ++events_;
    again();
    return true;
  }
  if (parked != park_result::quiet) return false;
  nap_parked(true, options_.longest_nap);
  return true;
}

/// Until the doorbell rings, or so long.
COHORT_INLINE void engine::nap_parked(bool holds_work, std::chrono::nanoseconds duration) {
  was_parked_ = true;
  wake_up_->arm();
  parks_.add(1);
  nap(holds_work, duration);
}

COHORT_INLINE std::chrono::nanoseconds engine::next_last_look() noexcept {
  const unsigned left = last_looks_.fetch_sub(1, std::memory_order_relaxed);
  std::chrono::milliseconds pause(1);
  for (unsigned past = left; past < most_last_looks; ++past) pause *= 10;
  return pause;
}

COHORT_INLINE void engine::nap(bool holds_work) {
  auto duration = backoff_.nap(coarse_now(), options_);
  for (polled_source* const source : sources_) duration = std::min(duration, source->longest_nap());
  nap(holds_work, duration);
}

COHORT_INLINE void engine::nap(bool holds_work, std::chrono::nanoseconds duration) {
  after_nap_ = true;
  has_napped_ = true;
  const std::lock_guard falling_asleep(nap_mutex_);
  loop_->start_nap(duration, holds_work);
  timer_armed_ = true;
  state_.store(state::napping);
  auto expected = state::napping;
  if (poked_.load() && state_.compare_exchange_strong(expected, state::running)) again();
}

COHORT_INLINE void engine::nap_over() {
  auto expected = state::napping;
  {
    const std::lock_guard fallen_asleep(nap_mutex_);
    if (!state_.compare_exchange_strong(expected, state::running)) return;
  }
  lap();
}

// ---- the end -------------------------------------------------------------------------------

// Handlers are destroyed, never called; MPI is drained first, because buffers may live in the
// coroutine frames that die with them.
COHORT_INLINE void engine::shutdown() {
  state_.store(state::stopped);
  leave(drain_bound());
  loop_.reset();
  destroy_ready();
}

// Frames that die in the shutdown of other services may hand in operations after ours.
COHORT_INLINE engine::~engine() { destroy_ready(); }

COHORT_INLINE void engine::destroy_ready() {
  do {  // what is destroyed may start operations
    take_handed_in();
    while (!ready_.empty()) ready_.pop()->destroy();
  } while (has_handed_in_.load());
}

}  // namespace cohort::progress
