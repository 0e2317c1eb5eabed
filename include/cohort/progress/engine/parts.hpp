// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What an engine is made of: the loop that carries it, its sources, as one, and its sleep.
/// Sources and started operations enter this room, finished operations leave for the lap.

#include <cohort/core/asio.hpp>
#include <cohort/core/config.hpp>
#include <cohort/progress/backoff.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/polled_source.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::progress::detail {

/// Takes an operation to an executor, its own or the engine's; destroys it if that drops the
/// function.
template <operation::action How>
class carrier {
 public:
  using allocator_type = pool_allocator<void>;
  explicit carrier(operation& op) noexcept : op_(&op) {}
  carrier(carrier&& other) noexcept : op_(std::exchange(other.op_, nullptr)) {}
  carrier& operator=(carrier&&) = delete;
  ~carrier() {
    if (op_ != nullptr) op_->destroy();
  }
  void operator()() {
    operation& op = *std::exchange(op_, nullptr);
    if constexpr (How == operation::action::deliver) {
      op.deliver();
    } else {
      op.deliver_here();
    }
  }
  [[nodiscard]] allocator_type get_allocator() const noexcept { return {}; }

 private:
  operation* op_;
};
using hop = carrier<operation::action::deliver_here>;

/// Behind this interface lies all that the engine uses of Asio's posting and timers: some 1 500
/// functions, which only the files compile that make an engine (progress/engine.ipp).
class event_loop {
 public:
  virtual ~event_loop() = default;
  /// Calls `engine::lap()` soon; from any thread.
  virtual void post_lap() = 0;
  /// The same from inside a lap, behind whatever else the loop has to do.
  virtual void defer_lap() = 0;
  /// Delivers `op` soon; from any thread.
  virtual void post(operation& op) = 0;
  /// Delivers `op` on `where`, in place if that allows it.
  virtual void dispatch(asio::any_io_executor where, operation& op) = 0;
  /// Calls `engine::nap_over()` after `duration`. `holds_work`: keeps `io.run()` from returning.
  virtual void start_nap(std::chrono::nanoseconds duration, bool holds_work) = 0;
  /// Called only after start_nap(). The nap may be over already.
  virtual void cancel_nap() = 0;

  using readable_function = void (*)(void*);
  /// Calls `ready(argument)` once when `socket` can be read. Keeps no `io.run()` from returning.
  /// One socket per loop, which stays the caller's; call from inside a handler.
  virtual void wait_readable(int socket, readable_function ready, void* argument) = 0;
  /// Before the socket is closed.
  virtual void forget_socket() noexcept = 0;
};

template <class Engine, class Context>
class asio_loop;

}  // namespace cohort::progress::detail

namespace cohort::progress {

/// Written by one thread at a time, so that no read-modify-write is needed; read by any.
class relaxed_counter {
 public:
  void add(std::uint64_t n) noexcept { set(get() + n); }
  void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
  /// Counts one more; which number that is.
  std::uint64_t next() noexcept {
    add(1);
    return get();
  }
  [[nodiscard]] std::uint64_t get() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// The sources of an engine. It only grows while the engine lives, and what is in it stays where it
/// is, so a lap can go through it while another thread adds a source.
class source_list {
 public:
  static constexpr std::size_t most = 16;

  /// Borrows the source. Throws std::length_error when there is no room.
  void add(polled_source& one);
  /// The same for what stands for a class without that base.
  void add(const void* stands_for, std::unique_ptr<polled_source> one);
  /// At the end, when no lap runs. Looks into none of them: others may have gone without a word.
  void remove(const void* attached) noexcept;

  /// Looks until something is found or the budget is spent, of which a look at dear sources takes
  /// more. Returns how many operations have been found.
  std::size_t look(ready_queue& ready, unsigned& budget);

  [[nodiscard]] std::size_t pending() const {
    std::size_t sum = 0;
    for (const polled_source* const one : all()) sum += one->pending();
    return sum;
  }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const polled_source* const one : all()) sum += one->bytes();
    return sum;
  }
  /// The shortest of the longest naps that sources allow and `nap`.
  [[nodiscard]] std::chrono::nanoseconds longest_nap(std::chrono::nanoseconds nap) const {
    for (const polled_source* const one : all()) nap = std::min(nap, one->longest_nap());
    return nap;
  }
  [[nodiscard]] bool only_announced() const;

  /// They are parked if the answer is `quiet`. `rings`: there is a bell.
  [[nodiscard]] park_result park(ready_queue& ready, bool rings) const;
  void unpark() const { for_each(&polled_source::unpark); }

  void leave() const { for_each(&polled_source::leave); }
  void end() const { for_each(&polled_source::end); }
  void abandon() const { for_each(&polled_source::abandon); }
  void describe(std::string& text) const {
    for (polled_source* const one : all()) one->describe(text);
  }
  void make_progress() const { for_each(&polled_source::make_progress); }
  void tick(steady_clock::time_point now) const {
    for (polled_source* const one : all()) one->tick(now);
  }

  /// So many looks more, and what they have found.
  void count(std::uint64_t looks, std::uint64_t found) noexcept {
    tests_.add(looks);
    completions_.add(found);
  }
  /// Looks at all of them, and operations whose outcome one has found.
  [[nodiscard]] std::uint64_t tests() const noexcept { return tests_.get(); }
  [[nodiscard]] std::uint64_t completions() const noexcept { return completions_.get(); }

 private:
  static constexpr unsigned dear_look = 16;  // takes as much of a lap as so many others
  struct adapter {
    const void* stands_for;
    std::unique_ptr<polled_source> source;
  };

  [[nodiscard]] std::span<polled_source* const> all() const noexcept {
    return {all_.data(), size_.load(std::memory_order_acquire)};
  }
  void append(polled_source& one);
  void for_each(void (polled_source::*call)()) const {
    for (polled_source* const one : all()) (one->*call)();
  }
  [[nodiscard]] bool only_dear_pending() const;
  std::size_t look_at_each(ready_queue& ready);

  std::array<polled_source*, most> all_{};
  std::atomic<std::size_t> size_{0};
  std::vector<adapter> adapters_;
  std::mutex adding_;
  relaxed_counter tests_;
  relaxed_counter completions_;
};

/// Wakes an engine that sleeps although control messages may arrive (`progress/doorbell.hpp`).
class wake_up {
 public:
  virtual ~wake_up() = default;
  /// Begins to wait for a ring, unless it waits already. Called inside a handler of the loop only.
  virtual void arm() = 0;
  /// Whether a ring may be lost: then nobody sleeps for ever.
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
  [[nodiscard]] bool is_idle() const noexcept { return state_.load() == state::idle; }
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
#include <cohort/progress/engine/parts.ipp>
#endif
