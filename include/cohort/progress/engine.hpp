// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The engine: an Asio service that looks at what only answers when asked.

#include <cohort/core/asio.hpp>
#include <cohort/core/config.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/backoff.hpp>
#include <cohort/progress/engine/parts.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/own_thread.hpp>
#include <cohort/progress/polled_source.hpp>
#include <cohort/progress/shared_queue.hpp>

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace cohort::progress {

/// What an engine has done since it was made.
struct engine_statistics {
  std::uint64_t laps = 0;         ///< times the loop entered the engine
  std::uint64_t tests = 0;        ///< looks at all sources
  std::uint64_t completions = 0;  ///< operations whose outcome a look found
  std::uint64_t parked = 0;       ///< times it went to sleep until a doorbell rings
  std::uint64_t rings = 0;        ///< times it has rung the doorbell of another engine
};

/// One engine per `asio::io_context`, found with `asio::use_service<engine>(io)`.
///
/// It looks from the thread that runs the context, in *laps*. A lap looks up to 128 times for at
/// most 4 us while the loop has nothing else to do, lets one other handler run, and goes on; when
/// there was another handler, the next 64 laps are 8 looks long. What a look finds is delivered on
/// the lap's own stack. After a quiet time the engine sleeps on a timer; with nothing pending there
/// is no handler, no timer and no work, so `io.run()` returns.
///
/// *Threads.* Every function may be called from any thread unless it says otherwise. Sources bring
/// their own locks. One lap runs at a time, also when several threads run the context.
class engine : public asio::execution_context::service {
 public:
  using key_type = engine;
  static inline asio::execution_context::id id;
  using clock = std::chrono::steady_clock;

  /// For `asio::use_service`. A template, see detail::event_loop.
  template <std::derived_from<asio::execution_context> Context>
  explicit engine(Context& context);
  inline ~engine() override;

  /// Replaces the options. Call it before operations are started.
  void configure(const engine_options& options) {
    options_ = options;
    pace_ = lap_pace(options);
  }
  [[nodiscard]] const engine_options& options() const noexcept { return options_; }
  /// Tells the engine that ranks outnumber cores on this node: it then spins 5 us at most.
  void set_oversubscribed(bool yes) noexcept { sleep_.set_oversubscribed(yes); }
  [[nodiscard]] bool oversubscribed() const noexcept { return sleep_.oversubscribed(); }

  /// Adds a source, which must outlive the context's last handler.
  void attach(polled_source& source) { sources_.add(source); }
  template <poll_source Source>
    requires(!std::derived_from<Source, polled_source>)
  void attach(Source& source) {
    sources_.add(&source, std::make_unique<source_adapter<Source>>(source));
  }
  /// The source goes. What was handed in since the context ended goes first: it may use the source.
  void detach(const void* source) {
    if (stopped()) destroy_ready();
    sources_.remove(source);
  }
  void detach(const polled_source* source) { detach(static_cast<const void*>(source)); }
  void set_wake_up(wake_up* bell) noexcept { sleep_.set_bell(bell); }

  [[nodiscard]] asio::io_context& context() const noexcept { return io_; }
  [[nodiscard]] asio::io_context::executor_type get_executor() const noexcept {
    return io_.get_executor();
  }

  /// A source calls this when an operation has been added to it: the loop enters the engine soon.
  /// Inside a lap it costs nothing.
  void started() {
    is_disturbed_.store(true, std::memory_order_release);
    if (lapping_ == this) {
      ++events_;
    } else if (auto rises = sleep_.wake()) {
      loop_->post_lap();
      rises.has_lap();
    }
  }

  /// A message that no operation waits for has come, been announced or been sent: the answer or the
  /// next one often comes at once, and to be woken takes many times longer. So the engine looks on
  /// for as long as it spins before it sleeps.
  void attend() {
    if (sleep_.attend()) started();
  }
  /// The same for a message that has been sent, which may still be on this side: Open MPI calls it
  /// complete where the receiver's queue is full and it waits here for room. So the engine also
  /// wakes up 1, 10, 100 and 1000 ms after it has gone to sleep, unless `io.run()` has returned.
  void attend_sent() {
    sleep_.look_again_later();
    attend();
  }

  /// Hands in an operation whose outcome is known. It is delivered by the loop, never from here.
  void complete(operation* op);

  /// Delivers `op`, which waits for nothing, never from here: by the lap that this is called in, as
  /// `asio::post` would anywhere else. For what a message sets off, which then costs no turn of the
  /// loop.
  void post(operation* op);

  /// What it uses of the loop; for operations whose handlers live elsewhere.
  [[nodiscard]] detail::event_loop& loop() const noexcept { return *loop_; }

  /// What a thread waits for in place has ended: the lap ends with this delivery, so that it hears
  /// of it. From any thread.
  void end_wait();

  /// One look at every source from inside a computation. Runs no handler.
  void look();

  class in_place;

  /// Looks in place until `done()` or until `bound` has passed, running no handler; returns
  /// `done()`. For destructors and for the end of a context.
  template <class Predicate>
  bool drive_until(Predicate done, std::chrono::nanoseconds bound) {
    const auto until = clock::now() + bound;
    for (unsigned looks = 1; !done(); ++looks) {
      if (clock::now() >= until) return done();
      look();
      // The loops of other contexts stand still, which may hold what this one waits for.
      if (looks % 16 != 0) continue;
      process::look_at_all();
      sources_.make_progress();
    }
    return true;
  }

  /// The bound for waiting in place: `drain`, or what is left of `drain_after_failure` once the
  /// program has failed or an exception is being handled.
  [[nodiscard]] std::chrono::nanoseconds drain_bound() const noexcept;

  /// Cancels what can be cancelled and waits in place, bounded, until nothing is pending; what is
  /// pending after that is given up for good. Returns true if nothing was.
  bool leave(std::chrono::nanoseconds bound);

  /// Time of the last look, good to a lap. Cheap: no clock is read while the loop is busy.
  [[nodiscard]] clock::time_point coarse_now() const noexcept { return sleep_.now(); }

  /// True once the context is being destroyed: no lap follows, so wait in place.
  [[nodiscard]] bool stopped() const noexcept { return sleep_.stopped(); }

  /// Whether this thread is in a handler of the loop, or in one that a thread calls in its place.
  [[nodiscard]] bool is_in_handler() const noexcept {
    for (const lap_scope* each = innermost_; each != nullptr; each = each->outer()) {
      if (&each->of() == this) return true;
    }
    return get_executor().running_in_this_thread();
  }
  /// So many calls that block may end without a turn of the loop. It, and what goes by the clock,
  /// must have one all the same, now and then.
  static constexpr unsigned most_calls_without_turn = 256;
  /// The next call that waits in place gives it.
  void owe_turn() noexcept {
    calls_without_turn_.store(most_calls_without_turn, std::memory_order_relaxed);
  }
  /// Whether a call that blocks may end without a lap: nobody else runs the loop, which has not
  /// ended.
  [[nodiscard]] bool may_do_without_lap() const noexcept {
    return !has_own_thread() && !stopped() && !is_run_elsewhere();
  }
  /// Whether such a call may, and nothing is pending, or has ended and waits to be delivered. The
  /// answer yes is kept until something is started, a lap is made, a `progress_thread` begins or
  /// ends, or the context ends: then it costs two loads.
  [[nodiscard]] bool is_quiet() {
    return !handed_in_.has_any() &&
           (!is_disturbed_.load(std::memory_order_relaxed) || !finds_disturbance());
  }
  /// Whether a `progress_thread` runs the loop.
  [[nodiscard]] bool has_own_thread() const noexcept { return own_thread_->runs(); }
  /// Whether this thread is the one that has run its loop last, or has made it.
  [[nodiscard]] bool is_at_home() const noexcept {
    return home_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

  [[nodiscard]] engine_statistics statistics() const noexcept;
  /// Looks outside of a lap, and what they have found.
  void count_looks(unsigned looks, std::size_t found) noexcept { sources_.count(looks, found); }
  void count_ring() noexcept { rings_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::size_t pending() const { return sources_.pending(); }
  void describe(std::string& text) const { sources_.describe(text); }

 private:
  template <class Engine, class Context>
  friend class detail::asio_loop;
  enum class lap_state : std::uint8_t {
    free,
    taken,
    missed  ///< and the loop had a turn for one meanwhile
  };
  /// This thread laps, and no other.
  class lap_scope {
   public:
    /// Not if another thread does, and then `otherwise` is noted: taken, or missed.
    lap_scope(engine& of, lap_state otherwise) noexcept;
    ~lap_scope();
    lap_scope(const lap_scope&) = delete;
    [[nodiscard]] explicit operator bool() const noexcept { return of_ != nullptr; }
    [[nodiscard]] const engine& of() const noexcept { return *of_; }
    /// The one around it on this thread, of another engine.
    [[nodiscard]] const lap_scope* outer() const noexcept { return outer_; }

   private:
    engine* of_ = nullptr;
    const lap_scope* outer_;
  };

  COHORT_INLINE void shutdown() override;
  void destroy_ready();

  void lap();
  bool round(unsigned budget);
  void wake_sleepers();
  void be_at_home() noexcept {
    if (!is_at_home()) home_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  void tick();
  void end_of_lap();
  void nap_over();
  void again() { loop_->defer_lap(); }
  /// Whether another thread runs the loop of which the library knows nothing.
  [[nodiscard]] bool is_run_elsewhere() const noexcept {
    return is_run_elsewhere_.load(std::memory_order_relaxed) && !has_own_thread() &&
           !is_at_home() && !io_.stopped();
  }
  [[nodiscard]] bool owes_turn_after_call() noexcept {
    const unsigned calls = calls_without_turn_.load(std::memory_order_relaxed) + 1;
    calls_without_turn_.store(calls, std::memory_order_relaxed);
    return calls >= most_calls_without_turn;
  }
  [[nodiscard]] COHORT_INLINE bool finds_disturbance();
  [[nodiscard]] bool wants_looks() const { return pending() != 0 || sleep_.attends(); }

  static constexpr auto tick_period = std::chrono::milliseconds(50);
  static constexpr auto progress_period = std::chrono::microseconds(50);
  static inline thread_local engine* lapping_ = nullptr;  // the engine whose lap this thread is in
  static inline thread_local const lap_scope* innermost_ = nullptr;
  static inline thread_local engine* waits_for_ = nullptr;  // the one that it waits in place for

  asio::io_context& io_;
  std::unique_ptr<detail::event_loop> loop_;
  engine_options options_ = engine_options::from_environment();
  source_list sources_;
  shared_queue handed_in_;
  engine_sleep sleep_;

  // Touched by the lap only.
  ready_queue ready_;
  lap_pace pace_{options_};
  std::uint64_t events_ = 0;  // operations started and found
  unsigned laps_beside_others_ = 0;
  bool beside_others_ = false;  // laps of one look, each followed by another handler
  bool saw_others_ = false;
  bool ends_lap_ = false;
  clock::time_point last_tick_{};
  clock::time_point last_progress_{};

  std::atomic<lap_state> lap_state_{lap_state::free};
  std::atomic<bool> is_run_elsewhere_{
      false};                             // the last lap was of a thread that waits for nothing
  own_thread* own_thread_;                // of the context
  std::atomic<bool> is_in_place_{false};  // a thread stands in for the loop
  std::atomic<std::uint32_t> in_place_turns_{0};
  std::atomic<unsigned> sleepers_{0};  // that wait for one
  std::atomic<unsigned> calls_without_turn_{0};
  std::atomic<bool> is_disturbed_{true};  // false: see is_quiet, whose answer is kept

  relaxed_counter laps_;
  std::atomic<std::uint64_t> rings_{0};
  std::atomic<std::thread::id> home_{std::this_thread::get_id()};

  // Lets code below this layer ask every engine of the process what is in flight.
  class in_flight_hook final : public process::hooks {
   public:
    ~in_flight_hook() { process::remove_hooks(this); }
    void attach(engine* owner) {
      owner_ = owner;
      process::add_hooks(this);
    }
    void describe(std::string& text) override { owner_->describe(text); }
    bool drain(std::chrono::nanoseconds bound) override { return owner_->leave(bound); }
    void look() override {
      if (owner_->is_at_home() && !owner_->stopped()) owner_->look();
    }

   private:
    engine* owner_ = nullptr;
  };
  in_flight_hook in_flight_;
};

/// A thread that waits in place, outside of the loop: it laps itself for as long as the engine
/// spins, and then runs the loop. One thread does so at a time; others that wait sleep until that
/// has had a turn, and so does each where the loop has a thread of its own. Handlers of other
/// operations are called meanwhile, as the loop would call them.
class engine::in_place {
 public:
  enum class on_trouble : std::uint8_t {
    leave,  ///< what a handler throws comes out at once, and error(errc::engine_stopped) where
            ///< somebody stops the context
    stay    ///< that comes out once the wait is over, for it is for what is on the caller's stack;
            ///< if it is not in engine_options::drain, or `drain_after_failure`, the job ends
  };
  /// Throws `std::errc::resource_deadlock_would_occur` inside a handler of the loop, and
  /// error(errc::wrong_thread) where a thread runs the loop of which the library knows nothing.
  explicit in_place(engine& of, on_trouble what = on_trouble::leave);
  /// For what has been begun where `is_quiet`, outside of handlers; with `on_trouble::stay`.
  struct begun {};
  in_place(engine& of, begun) noexcept;
  ~in_place();
  in_place(const in_place&) = delete;

  [[nodiscard]] engine& of() const noexcept { return of_; }
  /// Before that is started which is waited for: it then needs no turn of the loop.
  void begin();

  using done_function = bool (*)(const void* of);
  /// Until `done(of)`; what makes it so calls `end_wait` after that. `by_loop`: the loop has to
  /// begin it.
  void wait(done_function done, const void* of, bool by_loop = false);

 private:
  bool stand_in();
  void sleep_until_turn(done_function done, const void* of);
  bool lap(done_function done, const void* of, bool polls);
  void run_loop(done_function done, const void* of);
  bool poll();
  void end_laps();
  void keep_what_was_thrown();
  void give_up_in_time() const;

  engine& of_;
  engine* outer_;
  std::optional<lap_scope> lap_;
  bool stays_;
  bool stands_in_ = false;
  bool uses_loop_ = false;
  bool was_stopped_ = false;  // by somebody, meanwhile
  std::exception_ptr thrown_;
  clock::time_point until_{};  // meaningful only if something was thrown
};

/// Base of what starts operations under a token: the engine that these belong to, for tokens that
/// have to know it before. Null: there is none.
class initiation {
 public:
  explicit initiation(engine* of) noexcept : engine_(of) {}
  [[nodiscard]] engine* get_engine() const noexcept { return engine_; }

 private:
  engine* engine_;
};

/// A source of what devices do, whose looks are dear: while another source has something pending
/// it is looked at once a lap, else a few times. `Mutex` is held for a whole lap.
template <class Mutex>
class dear_source : public polled_source {
 public:
  [[nodiscard]] progress::engine& engine() const noexcept { return engine_; }

  bool begin_lap(ready_queue&) override {
    mutex_.lock();
    return true;
  }
  void end_lap() noexcept override { mutex_.unlock(); }
  [[nodiscard]] std::size_t pending() const noexcept override {
    return pending_.load(std::memory_order_relaxed);
  }
  /// A device answers within microseconds, however long the loop has been quiet before: naps stay
  /// as short as they are at first.
  [[nodiscard]] std::chrono::nanoseconds longest_nap() const noexcept override {
    return pending() == 0 ? polled_source::longest_nap() : engine_.options().nap;
  }

 protected:
  explicit dear_source(progress::engine& owner) : polled_source(cost::dear), engine_(owner) {}

  progress::engine& engine_;
  mutable Mutex mutex_;
  std::atomic<std::size_t> pending_{0};  // changed with the lock
};

}  // namespace cohort::progress

namespace cohort {

using progress::engine_options;
using progress::engine_statistics;

/// The engine of `io`, made at the first call.
template <std::same_as<asio::io_context> Context>
progress::engine& use_engine(Context& io) {
  return asio::use_service<progress::engine>(io);
}

/// The engine of `io`, with `options` from now on.
template <std::same_as<asio::io_context> Context>
progress::engine& use_engine(Context& io, const engine_options& options) {
  auto& engine = use_engine(io);
  engine.configure(options);
  return engine;
}

/// How often the engine of `io` has looked, and what it found.
template <std::same_as<asio::io_context> Context>
[[nodiscard]] engine_statistics engine_stats(Context& io) {
  return use_engine(io).statistics();
}

}  // namespace cohort

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/progress/engine.ipp>
#endif
