// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What a future, its awaiting coroutine and its operation share.

#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/detail/future_waiters.hpp>
#include <cohort/progress/engine.hpp>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <variant>

namespace cohort::progress::detail {

/// The context that `where` is of, perhaps through a strand, if that is a loop whose threads matter
/// here: one has an engine, or is named itself.
[[nodiscard]] inline asio::io_context* loop_of(const asio::any_io_executor& where) {
  auto& context = asio::query(where, asio::execution::context);
  const bool is_named = executor_inside<asio::io_context::executor_type>(where) != nullptr;
  // Only an io_context has an engine.
  if (!is_named && !asio::has_service<engine>(context)) return nullptr;
  return static_cast<asio::io_context*>(&context);
}

/// The part that does not depend on the result: who waits, and whether MPI still holds the buffers.
class future_state_base {
 public:
  [[nodiscard]] bool is_ready() const noexcept {
    return (flags_.load(std::memory_order_acquire) & ready) != 0;
  }

  /// Called by an operation when it takes the handler: from now on a dropped future waits.
  void belongs_to(engine& owner, operation& op, bool borrows) noexcept {
    engine_ = &owner;
    if (!borrows) return;
    settled_.store(false, std::memory_order_relaxed);
    op.report_settled_to(&settled_);
  }

  [[nodiscard]] engine* get_engine() const noexcept { return engine_; }

  /// False if the result has come meanwhile: go on without suspending.
  template <class Waiter>
  bool set_waiter(Waiter waiter) {
    waiter_.template emplace<Waiter>(std::move(waiter));
    return (flags_.fetch_or(waited_for, std::memory_order_acq_rel) & ready) == 0;
  }

  void set_awaitable_waiter(awaitable_handler&& handler) {
    if (!set_waiter(std::move(handler))) resume();
  }
  void set_countdown(countdown& all) {
    if (!set_waiter(&all)) all.count();
  }

  /// Called by an operation that has failed, before its handler: what the exception is to say
  /// besides the message of the code.
  void explain(std::error_code why, const std::string& text) {
    error_ = std::make_exception_ptr(std::system_error(why, text));
  }

  /// Called before an operation that is not cohort's own starts, a coroutine say: it runs there,
  /// and only there may it be cancelled.
  void runs_on(const asio::any_io_executor& where) {
    elsewhere_ = std::make_unique<asio::any_io_executor>(where);
  }

  void wait_blocking() const {
    if (is_ready()) return;
    if (is_on_loop_thread()) {
      throw std::system_error(std::make_error_code(std::errc::resource_deadlock_would_occur),
                              "future::get() on the thread that runs the loop");
    }
    sleep_until_ready();
  }

  /// The same for a thread that is in the place of the loop.
  void wait_in(engine::in_place& place, bool by_loop) {
    waited_on_ = &place.of();
    flags_.fetch_or(in_place, std::memory_order_acq_rel);
    place.wait(
        [](const void* state) { return static_cast<const future_state_base*>(state)->is_ready(); },
        this, by_loop);
  }

  /// Cancels the operation behind the future, on any thread: the loop may be finishing it now.
  static void cancel(const std::shared_ptr<future_state_base>& state,
                     asio::cancellation_type type) {
    if (state->is_ready()) return;
    const auto where = state->elsewhere();
    if (!where) return state->emit(type);
    where->execute([state, type] { state->emit_here(type); });
  }
  /// How an operation of ours is cancelled, with a type that is not `none`. Others use the slot,
  /// which costs an allocation.
  using canceller = void (*)(void* of, asio::cancellation_type);
  void cancels(void* of, canceller by) noexcept {
    cancelled_ = of;
    canceller_ = by;
  }
  /// The operation says that it cannot be cancelled any more.
  void clear_cancellation() noexcept {
    const signal_lock hold(signal_busy_);
    forget_canceller();
  }
  /// The same inside a cancellation.
  void forget_canceller() noexcept { canceller_ = nullptr; }
  [[nodiscard]] asio::cancellation_slot slot() noexcept { return cancellation_.slot(); }

  /// The plain coroutine that waits is destroyed: it must not be resumed. Or a countdown waits no
  /// longer. False if the result has come meanwhile: the waiter is told of it, or was.
  bool withdraw_waiter() noexcept {
    auto seen = flags_.load(std::memory_order_acquire);
    while ((seen & ready) == 0) {
      const auto without = static_cast<flag_set>(seen & ~waited_for);
      if (!flags_.compare_exchange_weak(seen, without)) continue;
      waiter_.emplace<std::monostate>();
      return true;
    }
    return false;
  }

  /// The operation is about to finish its work on the buffers: to divide, to unpack. False: they
  /// may be gone, do not touch them.
  [[nodiscard]] bool begin_finish() noexcept {
    return (flags_.fetch_or(finishing, std::memory_order_acq_rel) & given_up) == 0;
  }

  /// The frame that was to await this dies: see the class future. A receive is given up, so that
  /// the wait ends.
  void dropped() noexcept {
    if (engine_ == nullptr || is_ready()) return;
    if (!settled_.load(std::memory_order_acquire)) wait_in_place();
    if ((flags_.fetch_or(given_up, std::memory_order_acq_rel) & finishing) != 0) {
      block_until_ready();
    }
  }

 protected:
  void become_ready() {
    leave_elsewhere();
    if ((set_ready() & waited_for) != 0) resume();
  }

  /// The operation was destroyed without completing: the context is going away. A thread that
  /// blocks in `get()` is told; a waiting coroutine is destroyed, which breaks the cycle of state
  /// and frame.
  void abandoned() noexcept {
    leave_elsewhere();
    settled_.store(true, std::memory_order_release);
    set_ready();
    const auto frame = std::move(waiter_);
    waiter_.emplace<std::monostate>();
    if (auto* const* all = std::get_if<countdown*>(&frame)) (*all)->count_abandoned();
  }

  std::exception_ptr error_;

 private:
  // One word, so that each step is one atomic instruction.
  using flag_set = std::uint8_t;
  static constexpr flag_set finishing = 1;   // the operation works on the buffers
  static constexpr flag_set given_up = 2;    // dropped: it must not any more
  static constexpr flag_set waited_for = 4;  // by a coroutine
  static constexpr flag_set ready = 8;
  static constexpr flag_set blocked = 16;   // a thread waits until it is ready
  static constexpr flag_set sleeping = 32;  // a sleeper does
  static constexpr flag_set in_place = 64;  // a thread waits in place on an engine

  flag_set set_ready() noexcept {
    const flag_set before = flags_.fetch_or(ready, std::memory_order_acq_rel);
    if ((before & blocked) != 0) flags_.notify_all();
    if ((before & in_place) != 0) waited_on_->end_wait();
    if ((before & sleeping) != 0) sleeper_->wake();
    return before;
  }
  void block_until_ready() const noexcept {
    for (;;) {
      const auto seen =
          static_cast<flag_set>(flags_.fetch_or(blocked, std::memory_order_acq_rel) | blocked);
      if ((seen & ready) != 0) return;
      flags_.wait(seen);
    }
  }

  // After a second without a lap it says that nobody runs the loop.
  void sleep_until_ready() const noexcept {
    for (int turn = 0; turn < 4; ++turn) {  // often it takes less than falling asleep does
      std::this_thread::yield();
      if (is_ready()) return;
    }
    sleeper mine;
    sleeper_ = &mine;
    // set_ready() does not return while this is locked. So the operation has not ended as long as
    // nobody has woken this, and neither has the engine.
    std::unique_lock hold(mine.mutex_);
    if ((flags_.fetch_or(sleeping, std::memory_order_acq_rel) & ready) != 0) return;
    const auto laps = [this] { return engine_ == nullptr ? 0 : engine_->statistics().laps; };
    const auto is_woken = [&mine] { return mine.is_woken_; };
    const std::uint64_t laps_before = laps();
    if (mine.woken_.wait_for(hold, std::chrono::seconds(1), is_woken)) return;
    if (engine_ != nullptr && laps() == laps_before) {
      hold.unlock();
      log::write(log::level::warning,
                 "future::get() has waited for 1 s while nobody ran the loop: cohort::sync_wait "
                 "runs it until the result is there, a cohort::progress_thread all the time");
      hold.lock();
    }
    mine.woken_.wait(hold, is_woken);
  }

  // Held for as long as a cancellation takes; the common case, clearing, meets nobody.
  class signal_lock {
   public:
    explicit signal_lock(std::atomic_flag& busy) noexcept : busy_(busy) {
      while (busy_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
    }
    ~signal_lock() { busy_.clear(std::memory_order_release); }
    signal_lock(const signal_lock&) = delete;

   private:
    std::atomic_flag& busy_;
  };

  void emit(asio::cancellation_type type) {
    const signal_lock hold(signal_busy_);
    emit_here(type);
  }
  void emit_here(asio::cancellation_type type) {
    if (canceller_ == nullptr) return cancellation_.emit(type);
    if (type != asio::cancellation_type::none) canceller_(cancelled_, type);
  }

  [[nodiscard]] std::optional<asio::any_io_executor> elsewhere() const {
    const signal_lock hold(signal_busy_);
    if (!elsewhere_) return std::nullopt;
    return *elsewhere_;
  }
  // Before the result is there: the executor must not be kept longer than its context.
  void leave_elsewhere() noexcept {
    if (!elsewhere_) [[likely]]
      return;
    const signal_lock hold(signal_busy_);
    elsewhere_.reset();
  }

  [[nodiscard]] bool is_on_loop_thread() const {
    if (engine_ != nullptr) return engine_->is_in_handler();
    const auto where = elsewhere();
    if (!where) return false;
    auto* const loop = loop_of(*where);
    if (loop == nullptr) return false;
    if (asio::has_service<engine>(*loop)) return asio::use_service<engine>(*loop).is_in_handler();
    return loop->get_executor().running_in_this_thread();
  }

  void wait_in_place() noexcept {
    emit(asio::cancellation_type::terminal);
    const bool done = engine_->drive_until(
        [this] { return settled_.load(std::memory_order_acquire); }, engine_->drain_bound());
    if (done) return;
    std::string text =
        "a future over a borrowed buffer was destroyed while MPI still uses the "
        "buffer, and the operation did not end in time; in flight:\n";
    // What it says cannot be known before somebody catches it.
    if (std::uncaught_exceptions() > 0) text.insert(0, "while an exception was on its way, ");
    engine_->describe(text);
    process::end_job(text);
  }

  void resume() {
    if (auto* plain = std::get_if<std::coroutine_handle<>>(&waiter_)) {
      plain->resume();
      return;
    }
    if (auto* const* all = std::get_if<countdown*>(&waiter_)) return (*all)->count();
    auto handler = std::move(std::get<awaitable_handler>(waiter_));
    waiter_.emplace<std::monostate>();
    asio::dispatch(std::move(handler));
  }

  mutable std::atomic<flag_set> flags_{0};
  std::atomic<bool> settled_{true};
  mutable sleeper* sleeper_ = nullptr;
  engine* engine_ = nullptr;
  engine* waited_on_ = nullptr;
  std::unique_ptr<asio::any_io_executor> elsewhere_;  // an operation of another library runs there
  asio::cancellation_signal cancellation_;
  void* cancelled_ = nullptr;
  canceller canceller_ = nullptr;
  mutable std::atomic_flag signal_busy_;
  std::variant<std::monostate, std::coroutine_handle<>, awaitable_handler, countdown*> waiter_;
};

template <class T>
class future_state;

/// Also what is left of the state of a value for who does not want the value.
template <>
class future_state<void> : public future_state_base {
 public:
  void set(std::exception_ptr error) {
    if (!error || !error_) error_ = std::move(error);
    become_ready();
  }
  void abandon() noexcept {
    error_ = std::make_exception_ptr(std::system_error(make_error_code(errc::engine_stopped)));
    abandoned();
  }

  /// Once it is ready.
  [[nodiscard]] const std::exception_ptr& error() const noexcept { return error_; }
  void take() const {
    if (error_) std::rethrow_exception(error_);
  }
};

template <class T>
class future_state : public future_state<void> {
 public:
  template <class... Values>
  void set(std::exception_ptr error, Values&&... values) {
    if (!error || !error_) error_ = std::move(error);
    if (!error_) value_.emplace(std::forward<Values>(values)...);
    become_ready();
  }

  T take() {
    future_state<void>::take();
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
};

template <class T>
using state_ptr = std::shared_ptr<future_state<T>>;

template <class T>
state_ptr<T> make_state() {
  return std::allocate_shared<future_state<T>>(pool_allocator<future_state<T>>());
}

/// Owns the duty of whoever drops a future in flight. Lives in the frame of \ref wait_for.
template <class T>
class state_duty {
 public:
  explicit state_duty(state_ptr<T> state) noexcept : state_(std::move(state)) {}
  state_duty(state_duty&&) noexcept = default;
  state_duty& operator=(state_duty&&) = delete;
  ~state_duty() {
    if (state_) state_->dropped();
  }
  [[nodiscard]] future_state<T>& operator*() const noexcept { return *state_; }
  [[nodiscard]] const state_ptr<T>& shared() const noexcept { return state_; }

 private:
  state_ptr<T> state_;
};

/// Passes a cancellation of the waiting coroutine on to the operation. Stays in the coroutine's
/// slot until its next operation, so it may be called when the future is long gone.
struct forward_cancellation {
  std::weak_ptr<future_state_base> state;
  void operator()(asio::cancellation_type type) const {
    if (const auto alive = state.lock()) future_state_base::cancel(alive, type);
  }
};

struct wait_initiation {
  template <class Handler, class T>
  void operator()(Handler&& handler, const state_duty<T>* duty) const {
    auto slot = asio::get_associated_cancellation_slot(handler);
    if (slot.is_connected()) {
      slot.template emplace<forward_cancellation>(forward_cancellation{duty->shared()});
    }
    (**duty).set_awaitable_waiter(std::forward<Handler>(handler));
  }
};

/// The coroutine inside a future: lazy, so that it costs nothing until awaited.
template <class T>
asio::awaitable<T> wait_for(state_duty<T> duty) {
  if (!(*duty).is_ready()) {
    const state_duty<T>* in_this_frame = &duty;
    co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
        wait_initiation{}, asio::use_awaitable, in_this_frame);
  }
  co_return (*duty).take();
}

}  // namespace cohort::progress::detail
