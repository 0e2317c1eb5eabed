// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// When an engine sleeps, for how long, and what wakes it.

#include <cohort/core/config.hpp>
#include <cohort/progress/backoff.hpp>
#include <cohort/progress/engine/event_loop.hpp>
#include <cohort/progress/engine/sources.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>

namespace cohort::progress {

/// Wakes an engine that sleeps although control messages may arrive (`progress/doorbell.hpp`).
class wake_up {
 public:
  virtual ~wake_up() = default;
  /// Begins to wait for a ring, unless it waits already. Called inside a handler of the loop only.
  virtual void arm() = 0;
  /// Whether some of those who ring cannot be sure to be heard: then nobody sleeps for ever.
  [[nodiscard]] virtual bool may_miss() const noexcept { return false; }
};

/// The sleep of an engine: its state, its time, the timer and the bell.
///
/// An engine is *idle*, with nothing to do; or it has a lap; or it *naps*, until a timer ends that;
/// or it is *parked*, until the bell rings.
class engine_sleep {
  enum class state : std::uint8_t { idle, running, napping, parked, stopped };

 public:
  using clock = steady_clock;

  /// All three outlive it.
  engine_sleep(source_list& sources, const engine_options& options,
               detail::event_loop& loop) noexcept
      : sources_(sources), options_(options), loop_(loop) {}
  engine_sleep(const engine_sleep&) = delete;
  engine_sleep& operator=(const engine_sleep&) = delete;

  // ---- from any thread

  /// Whether the engine has to get up for what was started. If so, the caller posts its lap and
  /// says so with `has_lap`. Where posting throws, the engine sleeps on, and whoever wakes it next
  /// tries again.
  class rise {
   public:
    rise() noexcept = default;
    rise(engine_sleep& from, state was) noexcept : from_(&from), was_(was) {}
    rise(const rise&) = delete;
    rise& operator=(const rise&) = delete;
    ~rise() {
      if (from_ != nullptr) from_->state_.store(was_);
    }
    [[nodiscard]] explicit operator bool() const noexcept { return from_ != nullptr; }
    void has_lap() noexcept { from_ = nullptr; }

   private:
    engine_sleep* from_ = nullptr;
    state was_ = state::idle;
  };
  /// Something was started outside a lap.
  [[nodiscard]] rise wake() noexcept;
  /// The engine is to look on, for as long as it spins, before it sleeps. False if that was known.
  bool attend() noexcept {
    return !attends_.load(std::memory_order_relaxed) && !attends_.exchange(true);
  }
  [[nodiscard]] bool attends() const noexcept { return attends_.load(std::memory_order_relaxed); }
  /// Parked, it is to look again after 1, 10, 100 and 1000 ms.
  void look_again_later() noexcept {
    last_looks_.store(most_last_looks, std::memory_order_relaxed);
  }
  void stop() noexcept { state_.store(state::stopped); }
  [[nodiscard]] bool stopped() const noexcept { return state_.load() == state::stopped; }
  void set_oversubscribed(bool yes) noexcept { oversubscribed_.store(yes); }
  [[nodiscard]] bool oversubscribed() const noexcept {
    return oversubscribed_.load(std::memory_order_relaxed);
  }
  /// When the clock was last read.
  [[nodiscard]] clock::time_point now() const noexcept {
    return clock::time_point(clock::duration(now_.load(std::memory_order_relaxed)));
  }
  [[nodiscard]] std::uint64_t parks() const noexcept { return parks_.get(); }

  void set_bell(wake_up* bell) noexcept { bell_ = bell; }

  // ---- inside the lap

  /// A lap begins: the timer is disarmed, the sources are not parked any more.
  void get_up();
  /// The timer has ended. False if something else has woken the engine.
  [[nodiscard]] bool nap_is_over();
  /// Whether this is the first lap after a nap, once.
  [[nodiscard]] bool has_napped() noexcept { return std::exchange(after_nap_, false); }
  clock::time_point read_clock() noexcept {
    const auto read = clock::now();
    now_.store(read.time_since_epoch().count(), std::memory_order_relaxed);
    return read;
  }
  /// Whether something was started outside of the lap since this was asked.
  [[nodiscard]] bool take_start() noexcept;
  /// Whether something was started or has finished since `not_quiet`. `events`: how often in all.
  [[nodiscard]] bool has_news(std::uint64_t events) const noexcept {
    return events != seen_events_;
  }
  void not_quiet(std::uint64_t events) noexcept {
    seen_events_ = events;
    backoff_.reset(now(), options_);
  }
  /// Whether it is still worth looking again at once.
  [[nodiscard]] bool spins() const {
    return backoff_.spins(now(), sources_.bytes(), oversubscribed(), options_);
  }
  /// Whether the engine attends: once more it is worth it then.
  [[nodiscard]] bool looks_on() noexcept {
    return attends_.exchange(false, std::memory_order_relaxed);
  }
  /// With the timer every turn of the loop polls epoll.
  [[nodiscard]] bool has_timer() const noexcept { return has_timer_; }

  // ---- at the end of the lap: what was started meanwhile gives the engine another one

  /// `found`: a last look has found something. `nothing`: there is nothing to be woken for.
  enum class end_of_lap : std::uint8_t { asleep, found, nothing };
  void be_idle() { fall(state::idle); }
  /// With something pending: naps, or sleeps until the bell rings if that will do.
  end_of_lap with_work(ready_queue& ready);
  /// With control receives posted and nothing else: sleeps until the doorbell rings or, where there
  /// is none, naps; neither keeps `io.run()` from returning.
  end_of_lap without_work(ready_queue& ready, std::uint64_t events);

 private:
  static constexpr unsigned most_last_looks = 4;

  void fall(state to);
  void nap(std::chrono::nanoseconds duration, bool holds_work);
  void nap_parked(std::chrono::nanoseconds duration, bool holds_work);
  [[nodiscard]] std::chrono::nanoseconds next_nap();
  [[nodiscard]] std::chrono::nanoseconds next_last_look() noexcept;

  source_list& sources_;
  const engine_options& options_;
  detail::event_loop& loop_;
  wake_up* bell_ = nullptr;

  bool has_timer_ = false;
  bool timer_armed_ = false;
  bool after_nap_ = false;
  bool was_parked_ = false;
  std::uint64_t seen_events_ = 0;
  backoff backoff_;
  relaxed_counter parks_;

  std::atomic<state> state_{state::idle};
  std::atomic<bool> poked_{false};  // something was started outside a lap
  std::atomic<bool> attends_{false};
  std::atomic<bool> oversubscribed_{false};
  std::atomic<unsigned> last_looks_{0};  // still to come
  std::atomic<clock::rep> now_{0};
  std::mutex nap_mutex_;  // arming the timer and falling asleep are one step
};

}  // namespace cohort::progress

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/progress/engine/sleep.ipp>
#endif
