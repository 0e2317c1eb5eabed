// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `progress/engine.hpp`: the loop that carries it, laps, and the end.

#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/short_lock.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/operation.hpp>

#include <asio/posix/stream_descriptor.hpp>

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

// ---- the loop ----------------------------------------------------------------------------------

namespace cohort::progress::detail {

/// The loop of an `asio::io_context`. A template that the engine's constructor instantiates, which
/// is one too: so files that only await do not compile it.
template <class Engine, class Context>
class asio_loop final : public event_loop {
  /// The memory of what is posted comes from the pool.
  struct pooled {
    using allocator_type = pool_allocator<void>;
    [[nodiscard]] allocator_type get_allocator() const noexcept { return {}; }
  };
  struct lap_handler : pooled {
    explicit lap_handler(Engine& of) noexcept : owner(&of) {}
    void operator()() const { owner->lap(); }
    Engine* owner;
  };
  struct nap_handler : pooled {
    nap_handler(asio_loop* of, bool holds) noexcept : self(of), holds_work(holds) {}
    void operator()(const std::error_code& cancelled) const {
      if (!holds_work) self->io_.get_executor().on_work_started();
      if (!cancelled) self->owner_.nap_over();
    }
    asio_loop* self;
    bool holds_work;
  };
  struct readable_handler : pooled {
    readable_handler(asio_loop* of, readable_function call, void* with) noexcept
        : self(of), ready(call), argument(with) {}
    void operator()(const std::error_code& cancelled) const {
      self->io_.get_executor().on_work_started();
      if (!cancelled) ready(argument);
    }
    asio_loop* self;
    readable_function ready;
    void* argument;
  };

 public:
  asio_loop(Context& context, Engine& owner)
      : io_(static_cast<asio::io_context&>(context)), owner_(owner) {}

  void post_lap() override { asio::post(io_.get_executor(), lap_handler(owner_)); }
  void defer_lap() override { asio::defer(io_.get_executor(), lap_handler(owner_)); }
  void post(operation& op) override {
    asio::post(io_.get_executor(), carrier<operation::action::deliver>(op));
  }
  void dispatch(asio::any_io_executor where, operation& op) override {
    asio::dispatch(where, hop(op));
  }
  void start_nap(std::chrono::nanoseconds duration, bool holds_work) override {
    if (!timer_) timer_.emplace(io_);
    timer_->expires_after(duration);
    timer_->async_wait(nap_handler(this, holds_work));
    // Taken back first thing in the handler. Inside a handler the count cannot fall to zero here.
    if (!holds_work) io_.get_executor().on_work_finished();
  }
  void cancel_nap() override { timer_->cancel(); }
  void wait_readable(int socket, readable_function ready, void* argument) override {
    if (!socket_) socket_.emplace(io_, socket);
    socket_->async_wait(asio::posix::stream_descriptor::wait_read,
                        readable_handler(this, ready, argument));
    io_.get_executor().on_work_finished();  // taken back first thing in the handler
  }
  void forget_socket() noexcept override {
    if (socket_) socket_->release();
    socket_.reset();
  }

 private:
  asio::io_context& io_;
  Engine& owner_;
  // Constructed when first needed: their existence makes every turn of the loop dearer.
  std::optional<asio::steady_timer> timer_;
  std::optional<asio::posix::stream_descriptor> socket_;
};

}  // namespace cohort::progress::detail

namespace cohort::progress {

template <std::derived_from<asio::execution_context> Context>
engine::engine(Context& context)
    : asio::execution_context::service(context),
      io_(static_cast<asio::io_context&>(context)),
      loop_(std::make_unique<detail::asio_loop<engine, Context>>(context, *this)),
      sleep_(sources_, options_, *loop_),
      own_thread_(&asio::use_service<own_thread>(context)) {
  own_thread_->tell(in_place_turns_, is_disturbed_);
  in_flight_.attach(this);
}

// ---- called from anywhere ------------------------------------------------------------------

COHORT_INLINE void engine::complete(operation* op) {
  op->settle();
  if (lapping_ == this) {
    ready_.push(op);
    return;
  }
  handed_in_.push(op);
  started();
}

COHORT_INLINE void engine::post(operation* op) {
  if (lapping_ == this) {
    ready_.push(op);
  } else if (loop_ != nullptr) {
    loop_->post(*op);
  } else {  // the context ends: it is destroyed with the engine
    handed_in_.push(op);
  }
}

COHORT_INLINE void engine::look() {
  unsigned once = 1;
  if (lapping_ == this) {
    events_ += sources_.look(ready_, once);
    return;
  }
  ready_queue found;
  sources_.look(found, once);
  if (found.empty()) return;
  handed_in_.append(found);
  started();
}

COHORT_INLINE std::chrono::nanoseconds engine::drain_bound() const noexcept {
  if (process::failed.load(std::memory_order_relaxed) || std::uncaught_exceptions() > 0) {
    return process::failure_time_left(options_.drain_after_failure);
  }
  return options_.drain;
}

COHORT_INLINE bool engine::leave(std::chrono::nanoseconds bound) {
  sources_.leave();
  if (drive_until([this] { return pending() == 0; }, bound)) return true;
  sources_.end();
  if (pending() == 0) return true;
  std::string text;
  describe(text);
  process::add_leftovers(text);
  sources_.abandon();
  return false;
}

COHORT_INLINE engine_statistics engine::statistics() const noexcept {
  return {laps_.get(), sources_.tests(), sources_.completions(), sleep_.parks(),
          rings_.load(std::memory_order_relaxed)};
}

// ---- the lap -------------------------------------------------------------------------------

// 1. Undo sleep: disarm the timer, clear the parked flags.
// 2. Rounds of looks; what a look finds is delivered before the next look.
// 3. A long round ends with one nested `poll_one()`, so nobody else starves.
// 4. Decide: another lap at once, a nap, parked, or nothing.
// A handler that throws leaves through here: the rest stays queued and another lap is posted.
COHORT_INLINE void engine::lap() try {
  const lap_scope scope(*this, lap_state::missed);
  if (!scope) return;  // who laps in place posts another one
  calls_without_turn_.store(0, std::memory_order_relaxed);
  is_run_elsewhere_.store(waits_for_ != this, std::memory_order_relaxed);
  laps_.add(1);
  be_at_home();
  process::failure_over();  // an exception that was on its way has arrived
  sleep_.get_up();
  ends_lap_ = false;
  if (beside_others_) {
    round(1);
    if (ready_.empty()) {
      saw_others_ = io_.poll_one() != 0;
      if ((++laps_beside_others_ & 7U) == 0 || !saw_others_) tick();
    }
  } else if (const bool napped = sleep_.has_napped(); napped || pace_.is_short()) {
    round(options_.short_lap);
    if (pace_.end_short() || napped) tick();
  } else {
    constexpr int most_rounds = 16;  // then the loop's own turn, for `run_for` and other threads
    for (int n = 0; n < most_rounds; ++n) {
      const auto before = coarse_now();
      const std::uint64_t events_before = events_;
      const bool more = round(pace_.long_round());
      tick();
      // With operations still ready the loop has its turn without the nested call.
      if (!more || !ready_.empty() || ends_lap_) break;
      if (events_ == events_before) {  // only looks: this is what they cost
        if (n > 0) pace_.looks_took(coarse_now() - before, options_);
        if (!sleep_.spins()) break;
      } else {
        sleep_.not_quiet(events_);
      }
      if (io_.poll_one() != 0) {
        pace_.others_ran(options_);
        break;
      }
      pace_.nobody_ran();
      if (io_.stopped()) break;
    }
  }
  end_of_lap();
} catch (...) {
  again();
  throw;
}

/// Looks `budget` times, delivering on the way. False when nothing is left to look at. True also
/// when handlers had their share of the time, and then more may be ready.
COHORT_INLINE bool engine::round(unsigned budget) {
  unsigned deliveries = 0;
  for (;;) {
    if (handed_in_.has_any()) handed_in_.move_to(ready_);
    while (!ready_.empty()) {
      ready_.pop()->deliver();
      if (ends_lap_) [[unlikely]]
        return true;
      // A chain of handlers that compute must not keep timers and sockets waiting for long.
      if (++deliveries % 16 == 0) {
        const auto before = coarse_now();
        tick();
        if (coarse_now() - before > options_.long_lap_time || io_.stopped()) return true;
      }
    }
    if (handed_in_.has_any()) continue;
    if (!wants_looks()) return false;
    if (budget == 0) return true;
    const unsigned before = budget;
    events_ += sources_.look(ready_, budget);
    if (budget == before && ready_.empty()) return false;
  }
}

COHORT_INLINE void engine::tick() {
  const auto now = sleep_.read_clock();
  if (now - last_progress_ < progress_period) return;
  last_progress_ = now;
  if (pending() != 0) sources_.make_progress();
  if (now - last_tick_ < tick_period) return;
  last_tick_ = now;
  sources_.tick(now);
}

COHORT_INLINE void engine::end_of_lap() {
  if (sleep_.take_start()) ++events_;
  if (!ready_.empty() || handed_in_.has_any()) return again();
  auto end = engine_sleep::end_of_lap::asleep;
  if (!wants_looks()) {
    end = sleep_.without_work(ready_, events_);
    if (end == engine_sleep::end_of_lap::nothing) {
      if (!ready_.empty() || wants_looks()) return again();
      return sleep_.be_idle();
    }
  } else {
    if (sleep_.has_news(events_)) {
      beside_others_ = false;
      sleep_.not_quiet(events_);
      return again();
    }
    if (sleep_.spins() || sleep_.looks_on()) return again();
    // With the timer every turn of the loop polls epoll. So it is not made while other handlers
    // follow one another: then a lap is one look, and lets one of them run.
    beside_others_ = !sleep_.has_timer() && (!beside_others_ || saw_others_);
    if (beside_others_) return again();
    end = sleep_.with_work(ready_);
  }
  if (end == engine_sleep::end_of_lap::found) {
    ++events_;
    again();
  }
}

COHORT_INLINE void engine::nap_over() {
  if (sleep_.nap_is_over()) lap();
}

// ---- in place ------------------------------------------------------------------------------

COHORT_INLINE engine::lap_scope::lap_scope(engine& of, lap_state otherwise) noexcept
    : outer_(innermost_) {
  for (;;) {
    auto found = lap_state::free;
    if (of.lap_state_.compare_exchange_strong(found, lap_state::taken)) break;
    if (otherwise == lap_state::taken) return;
    if (of.lap_state_.compare_exchange_strong(found, otherwise)) return;
  }
  of_ = &of;
  lapping_ = &of;
  innermost_ = this;
  of.is_disturbed_.store(true, std::memory_order_release);
}

COHORT_INLINE engine::lap_scope::~lap_scope() {
  if (of_ == nullptr) return;
  innermost_ = outer_;
  lapping_ = outer_ == nullptr ? nullptr : outer_->of_;
  if (!of_->ready_.empty()) of_->handed_in_.append(of_->ready_);  // for others to see
  if (of_->lap_state_.exchange(lap_state::free) == lap_state::missed) of_->loop_->post_lap();
}

COHORT_INLINE bool engine::finds_disturbance() {
  const auto finds = [this] { return pending() != 0 || !may_do_without_lap(); };
  if (finds()) return true;
  // Who runs the loop is true of this thread, and of now, so it is asked every time.
  if (is_run_elsewhere_.load(std::memory_order_relaxed)) return false;
  is_disturbed_.exchange(false);
  if (!finds()) return false;
  is_disturbed_.store(true, std::memory_order_release);  // another thread has, meanwhile
  return true;
}

COHORT_INLINE void engine::end_wait() {
  if (lapping_ == this && !has_own_thread()) {
    ends_lap_ = true;
    return wake_sleepers();
  }
  in_place_turns_.fetch_add(1);
  in_place_turns_.notify_all();
  if (is_in_place_.load()) started();  // it may sleep in the loop
}

// Whoever begins to sleep while this reads the count is woken at the next turn.
COHORT_INLINE void engine::wake_sleepers() {
  if (sleepers_.load() == 0) [[likely]]
    return;
  in_place_turns_.fetch_add(1);
  in_place_turns_.notify_all();
}

COHORT_INLINE engine::in_place::in_place(engine& of, begun) noexcept
    : of_(of), outer_(std::exchange(waits_for_, &of)), stays_(true) {}

COHORT_INLINE engine::in_place::in_place(engine& of, on_trouble what)
    : of_(of), outer_(waits_for_), stays_(what == on_trouble::stay) {
  if (of.is_in_handler() || waits_for_ == &of) {
    throw std::system_error(std::make_error_code(std::errc::resource_deadlock_would_occur),
                            "waiting inside a handler of the same loop; co_await instead");
  }
  if (of.is_run_elsewhere()) {
    throw error(errc::wrong_thread,
                "waiting beside another thread that runs the loop; let a cohort::progress_thread "
                "run it, or nobody");
  }
  waits_for_ = &of;
}

COHORT_INLINE engine::in_place::~in_place() {
  end_laps();
  waits_for_ = outer_;
  if (uses_loop_) {
    of_.get_executor().on_work_finished();
    if (of_.io_.stopped() && !was_stopped_) of_.io_.restart();  // it had nothing more to do
    if (was_stopped_) of_.io_.stop();
  }
  if (!stands_in_) return;
  of_.is_in_place_.exchange(false);
  of_.wake_sleepers();
}

/// Whether this thread stands in for the loop now.
COHORT_INLINE bool engine::in_place::stand_in() {
  if (!stands_in_ && !of_.has_own_thread()) stands_in_ = !of_.is_in_place_.exchange(true);
  return stands_in_;
}

COHORT_INLINE void engine::in_place::begin() {
  if (stand_in()) lap_.emplace(of_, lap_state::taken);
}

COHORT_INLINE void engine::in_place::wait(done_function done, const void* of, bool by_loop) {
  while (!done(of)) {
    if (!stand_in()) {
      sleep_until_turn(done, of);
    } else if (!lap(done, of, by_loop)) {
      end_laps();
      run_loop(done, of);
    }
  }
  end_laps();
  if (thrown_) std::rethrow_exception(std::move(thrown_));
}

COHORT_INLINE void engine::in_place::sleep_until_turn(done_function done, const void* of) {
  of_.sleepers_.fetch_add(1);
  const std::uint32_t seen = of_.in_place_turns_.load();
  const bool nobody = !of_.has_own_thread() && !of_.is_in_place_.load();
  if (!done(of) && !nobody) of_.in_place_turns_.wait(seen);
  of_.sleepers_.fetch_sub(1);
}

/// Until this has been quiet for as long as the engine spins: false then.
COHORT_INLINE bool engine::in_place::lap(done_function done, const void* of, bool polls) {
  const bool gives_turn = of_.owes_turn_after_call();
  for (unsigned turns = 0; !done(of); ++turns) {
    if (!lap_ || !*lap_) lap_.emplace(of_, lap_state::taken);
    if (!*lap_) {  // a lap of the loop, on its way to its end
      cohort::detail::wait_after(turns);
      continue;
    }
    if (turns == 0) {
      of_.be_at_home();
      of_.laps_.add(1);
    }
    const std::uint64_t events_before = of_.events_;
    bool has_run = false;
    of_.ends_lap_ = false;
    try {
      if (polls || gives_turn || turns != 0) has_run = poll();
      if (gives_turn && turns == 0) {
        of_.calls_without_turn_.store(0, std::memory_order_relaxed);
        of_.tick();
      }
      of_.round(of_.pace_.long_round());
    } catch (...) {
      keep_what_was_thrown();
    }
    if (done(of)) break;
    of_.wake_sleepers();
    of_.tick();
    if (turns == 0 || has_run || of_.events_ != events_before) of_.sleep_.not_quiet(of_.events_);
    if (!of_.sleep_.spins()) return false;
  }
  return true;
}

COHORT_INLINE void engine::in_place::end_laps() {
  if (!lap_) return;
  lap_.reset();
  if (of_.handed_in_.has_any() || of_.wants_looks()) of_.started();
}

COHORT_INLINE void engine::in_place::run_loop(done_function done, const void* of) {
  for (; !done(of); of_.wake_sleepers()) {
    try {
      // Not for ever: another thread that runs the loop may take the last handler.
      if (!poll()) of_.io_.run_one_for(std::chrono::milliseconds(50));
    } catch (...) {
      keep_what_was_thrown();
    }
  }
}

/// One handler of the loop, if one is ready. The loop has work while this lives, so that it stops
/// only if somebody stops it.
COHORT_INLINE bool engine::in_place::poll() {
  asio::io_context& io = of_.io_;
  if (thrown_) give_up_in_time();
  if (!uses_loop_) {
    of_.get_executor().on_work_started();
    if (io.stopped()) io.restart();
    uses_loop_ = true;
  }
  if (io.stopped()) {
    was_stopped_ = true;
    if (!stays_) throw error(errc::engine_stopped, "the loop was stopped while a thread waited");
    io.restart();
  }
  return io.poll_one() != 0;
}

COHORT_INLINE void engine::in_place::keep_what_was_thrown() {
  if (!stays_) throw;
  if (thrown_) return;
  thrown_ = std::current_exception();
  until_ = clock::now() + of_.drain_bound();
}

COHORT_INLINE void engine::in_place::give_up_in_time() const {
  if (clock::now() < until_) return;
  std::string text = "a handler has thrown, and what a thread waits for does not end:\n";
  of_.describe(text);
  process::end_job(text);
}

// ---- the end -------------------------------------------------------------------------------

// Handlers are destroyed, never called; MPI is drained first, because buffers may live in the
// coroutine frames that die with them.
COHORT_INLINE void engine::shutdown() {
  sleep_.stop();
  is_disturbed_.store(true);
  leave(drain_bound());
  loop_.reset();
  destroy_ready();
}

// Frames that die in the shutdown of other services may hand in operations after ours.
COHORT_INLINE engine::~engine() { destroy_ready(); }

COHORT_INLINE void engine::destroy_ready() {
  do {  // what is destroyed may start operations
    handed_in_.move_to(ready_);
    while (!ready_.empty()) ready_.pop()->destroy();
  } while (handed_in_.has_any());
}

}  // namespace cohort::progress
