// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// An operation that ends with a completion handler: the handler's memory, executor, cancellation
/// and future, and the call.
///
/// A verb derives from it, says what its source knows of it (`Base`), and is freed before its
/// handler is called, so that the handler's next operation finds the memory:
///
///     template <class Handler>
///     class wait final : public handler_operation<wait<Handler>, Handler, source_operation> {
///      public:
///       wait(Handler& handler, source& from) : wait::handler_operation(handler), from_(from) {}
///       void start() {
///         this->connect(owner(), false);
///         from_.add(*this);
///       }
///       engine& owner() const { return from_.engine(); }
///       void cancel(asio::cancellation_type) { from_.cancel(*this); }
///       auto outcome(bool) {
///         return [why = this->error()](Handler&& handler) { std::move(handler)(why); };
///       }
///     };
///
/// Modelled on Asio's `detail/handler_work.hpp`.

#include <cohort/core/asio.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/engine/parts.hpp>
#include <cohort/progress/operation.hpp>

#include <asio/associator.hpp>
#include <asio/executor_work_guard.hpp>

#include <memory>
#include <new>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::progress {

/// The executor of a handler, and the work that keeps a foreign one alive.
///
/// On the engine's own executor a lap calls the handler itself: it costs less, and what it throws
/// leaves the lap at once, where `asio::dispatch` would hold it back until the lap has ended.
template <class Handler>
class handler_executor {
  using own_executor = asio::io_context::executor_type;
  using executor = asio::associated_executor_t<Handler, own_executor>;
  using tracked = std::decay_t<decltype(asio::prefer(std::declval<const executor&>(),
                                                     asio::execution::outstanding_work.tracked))>;

 public:
  handler_executor() = default;
  handler_executor(handler_executor&&) = default;
  /// Asio does not ask of executors that they can be assigned.
  handler_executor& operator=(handler_executor&& other) {
    foreign_.reset();
    if (other.foreign_) foreign_.emplace(std::move(*other.foreign_));
    return *this;
  }

  void set(const Handler& handler, const own_executor& own) {
    const executor ex = asio::get_associated_executor(handler, own);
    if (!same(ex, own)) {
      foreign_.emplace(asio::prefer(ex, asio::execution::outstanding_work.tracked));
    }
  }

  /// False where the handler belongs on the engine's own context: then laps and timers keep that
  /// alive, and the lap calls the handler itself.
  [[nodiscard]] bool is_foreign() const noexcept { return foreign_.has_value(); }
  /// Delivers `op`, which owns this, on the foreign executor; destroys it if that drops it.
  void dispatch(detail::event_loop& loop, operation& op) {
    auto where = std::move(*foreign_);
    if constexpr (std::is_same_v<tracked, asio::any_io_executor>) {
      loop.dispatch(std::move(where), op);
    } else {
      asio::dispatch(where, detail::hop(op));
    }
  }

 private:
  static bool same(const executor& ex, const own_executor& own) noexcept {
    if constexpr (std::is_same_v<executor, own_executor>) {
      return ex == own;
    } else if constexpr (requires { ex.template target<own_executor>(); }) {
      const auto* inside = executor_inside<own_executor>(ex);
      return inside != nullptr && *inside == own;
    } else {
      return false;
    }
  }
  std::optional<tracked> foreign_;
};

// ---- the future ---------------------------------------------------------------------------------

/// What is associated with a handler that fills no future.
struct no_future {};

template <class Handler, class Candidate = no_future>
struct associated_future;

namespace detail {

template <class Handler, class Candidate, class = void, class = void>
struct associated_future_impl {
  using type = Candidate;
  static type get(const Handler&, const Candidate& none = Candidate()) noexcept { return none; }
};
template <class Handler, class Candidate, class Adapter>
struct associated_future_impl<Handler, Candidate, std::void_t<typename Handler::filled_future_type>,
                              Adapter> {
  using type = typename Handler::filled_future_type;
  static type get(const Handler& handler, const Candidate& = Candidate()) noexcept {
    return handler.get_filled_future();
  }
};
template <class Handler, class Candidate>
struct associated_future_impl<
    Handler, Candidate, void,
    std::void_t<typename asio::associator<associated_future, Handler, Candidate>::type>>
    : asio::associator<associated_future, Handler, Candidate> {};

}  // namespace detail

/// An associator, like those of executors and allocators, so `as_tuple(as_future)`,
/// `bind_executor(ex, as_future)` and Asio's other adapters pass on what they wrap.
template <class Handler, class Candidate>
struct associated_future : detail::associated_future_impl<Handler, Candidate> {};

/// Whether a handler fills a future, itself or behind adapters.
template <class Handler>
inline constexpr bool fills_future =
    !std::is_same_v<typename associated_future<Handler>::type, no_future>;

namespace detail {

/// What a cancellation slot holds: one type for all operations, so that Asio's part of it is
/// compiled once.
struct on_cancel {
  void* of;
  void (*cancel)(void*, asio::cancellation_type);
  void operator()(asio::cancellation_type type) const {
    if (type != asio::cancellation_type::none) cancel(of, type);
  }
};

}  // namespace detail

/// \tparam Derived has, public,
/// - `engine& owner() const`,
/// - `auto outcome(bool dropped)`: moves out the arguments of the handler, and returns what
///   calls it, to be called with the handler once the operation is freed. `dropped`: the
///   awaiter has gone with its buffers, so the result is `operation_aborted` and they are not
///   touched,
/// - `void cancel(asio::cancellation_type)` if it is connected; the type is not `none`,
/// - perhaps `void leaves(action)`, called first when it ends, on the thread of the lap, and once
///   more with `deliver_here` on a foreign executor.
///
/// \tparam Base derives from \ref operation; its constructor's first argument is the `function`.
template <class Derived, class Handler, class Base = operation>
class handler_operation : public Base {
  using associated = asio::associated_allocator_t<Handler, pool_allocator<void>>;
  using allocator = typename std::allocator_traits<associated>::template rebind_alloc<Derived>;
  using traits = std::allocator_traits<allocator>;

 public:
  using action = operation::action;

  /// In memory of the handler's allocator, by default the pool. The handler is moved from once the
  /// memory is there. Throws what the allocator and the constructor throw.
  template <class... Arguments>
  [[nodiscard]] static Derived* make(Handler& handler, Arguments&&... arguments) {
    allocator memory = memory_of(handler);
    Derived* const block = traits::allocate(memory, 1);
    try {
      return ::new (static_cast<void*>(block))
          Derived(handler, std::forward<Arguments>(arguments)...);
    } catch (...) {
      traits::deallocate(memory, block, 1);
      throw;
    }
  }

  void leaves(action) noexcept {}

 protected:
  static constexpr bool fills_future = progress::fills_future<Handler>;

  template <class... Arguments>
  explicit handler_operation(Handler& handler, Arguments&&... of_base)
      : Base(&run, std::forward<Arguments>(of_base)...), handler_(std::move(handler)) {}
  ~handler_operation() {
    if (has_handler_) {
      handler_.~Handler();
    } else {
      memory_of_detached_.~allocator();
    }
  }

  /// Before the operation is handed in. `borrows`: a future that is dropped waits until nothing
  /// touches the caller's buffers any more.
  void connect(engine& by, bool borrows) {
    find_executor(by);
    connect_cancellation(by, borrows);
  }
  // Its two parts, for a caller that hands the operation in between them.
  void find_executor(const engine& by) { executor_.set(handler_, by.get_executor()); }
  void connect_cancellation(engine& by, bool borrows) {
    auto slot = asio::get_associated_cancellation_slot(handler_);
    has_slot_ = slot.is_connected();
    if constexpr (fills_future) {
      future()->belongs_to(by, *this, borrows);
      // A dropped future cancels too, whatever slot was bound.
      future()->cancels(&self(), cancel_derived);
      has_slot_ = has_slot_ && slot != future()->slot();
    }
    if (has_slot_)
      slot.template emplace<detail::on_cancel>(detail::on_cancel{&self(), cancel_derived});
  }

  /// False after \ref detach.
  [[nodiscard]] bool has_handler() const noexcept { return has_handler_; }
  /// Of a handler that `fills_future`.
  [[nodiscard]] auto future() const noexcept { return associated_future<Handler>::get(handler_); }

  /// Inside a cancellation: the handler leaves, the operation goes on without it. Returns what
  /// calls the handler with `arguments`; hand it to the engine.
  template <class... Arguments>
  [[nodiscard]] operation* detach(engine& by, std::tuple<Arguments...> arguments);

 private:
  static allocator memory_of(const Handler& handler) noexcept {
    return allocator(asio::get_associated_allocator(handler, pool_allocator<void>()));
  }
  Derived& self() noexcept { return static_cast<Derived&>(*this); }

  static void cancel_derived(void* of, asio::cancellation_type type) {
    static_cast<Derived*>(of)->cancel(type);
  }
  void disconnect_cancellation() {
    if constexpr (fills_future) future()->clear_cancellation();  // its owner may on another thread
    if (has_slot_) asio::get_associated_cancellation_slot(handler_).clear();
  }

  // Where the handler is not called, the context is going away, and the slot's signal and the
  // future's owner may be gone already.
  static void run(operation* base, action what) {
    auto& derived = static_cast<Derived&>(*base);
    handler_operation& self = derived;
    derived.leaves(what);
    if (!self.has_handler_) {
      allocator memory = self.memory_of_detached_;
      return self.free(memory);
    }
    if (what == action::deliver && self.executor_.is_foreign()) {
      return self.executor_.dispatch(derived.owner().loop(), derived);
    }
    bool dropped = false;
    if (what != action::destroy) {
      self.disconnect_cancellation();
      if constexpr (fills_future) dropped = !self.future()->begin_finish();
    }
    allocator memory = memory_of(self.handler_);
    Handler handler(std::move(self.handler_));
    auto call = derived.outcome(dropped);
    self.free(memory);
    if (what != action::destroy) call(std::move(handler));
  }
  void free(allocator& memory) {
    Derived* const block = &self();
    block->~Derived();
    traits::deallocate(memory, block, 1);
  }

  handler_executor<Handler> executor_;
  union {
    Handler handler_;
    allocator memory_of_detached_;
  };
  bool has_handler_ = true;  // false once detached
  bool has_slot_ = false;

  template <class, class...>
  friend class handler_delivery;
};

/// A handler on its way, with its arguments.
template <class Handler, class... Arguments>
class handler_delivery final
    : public handler_operation<handler_delivery<Handler, Arguments...>, Handler> {
 public:
  handler_delivery(Handler& handler, engine& by, handler_executor<Handler>&& where,
                   std::tuple<Arguments...>&& arguments)
      : handler_delivery::handler_operation(handler), owner_(by), arguments_(std::move(arguments)) {
    this->executor_ = std::move(where);
  }

  [[nodiscard]] engine& owner() const noexcept { return owner_; }
  [[nodiscard]] auto outcome(bool) {
    return [arguments = std::move(arguments_)](Handler&& handler) mutable {
      std::apply(std::move(handler), std::move(arguments));
    };
  }

 private:
  engine& owner_;
  std::tuple<Arguments...> arguments_;
};

template <class Derived, class Handler, class Base>
template <class... Arguments>
operation* handler_operation<Derived, Handler, Base>::detach(engine& by,
                                                             std::tuple<Arguments...> arguments) {
  if (has_slot_) asio::get_associated_cancellation_slot(handler_).clear();
  if constexpr (fills_future) future()->forget_canceller();  // a canceller holds its lock
  const allocator memory = memory_of(handler_);
  operation* const farewell = handler_delivery<Handler, Arguments...>::make(
      handler_, by, std::move(executor_), std::move(arguments));
  handler_.~Handler();
  ::new (static_cast<void*>(&memory_of_detached_)) allocator(memory);
  has_handler_ = false;
  return farewell;
}

/// A handler that waits for something that has no operation in the engine, and is then called on
/// its executor, which it keeps from running out of work: never inside the caller.
template <class Handler>
class posted_handler {
 public:
  posted_handler(Handler handler, engine& by)
      : handler_(std::move(handler)), owner_(&by), work_(by.get_executor()) {
    executor_.set(handler_, by.get_executor());
    if (executor_.is_foreign()) work_.reset();
  }

  [[nodiscard]] auto slot() const { return asio::get_associated_cancellation_slot(handler_); }

  /// Once. The cancellation slot is let go of.
  template <class... Arguments>
  void post(Arguments&&... arguments) {
    if (auto mine = slot(); mine.is_connected()) mine.clear();
    std::tuple<std::decay_t<Arguments>...> stored(std::forward<Arguments>(arguments)...);
    using delivery = handler_delivery<Handler, std::decay_t<Arguments>...>;
    owner_->post(delivery::make(handler_, *owner_, std::move(executor_), std::move(stored)));
    work_.reset();
  }

 private:
  Handler handler_;
  engine* owner_;
  handler_executor<Handler> executor_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
};

namespace detail {

/// A handler on its way to its executor, and what calls it there.
template <class Handler, class Call>
class posted_call final : public operation {
 public:
  posted_call(Handler&& handler, Call&& call)
      : operation(&run), handler_(std::move(handler)), call_(std::move(call)) {}

 private:
  static void run(operation* base, action what) {
    auto* const self = static_cast<posted_call*>(base);
    if (what == action::destroy) return delete self;
    Handler handler(std::move(self->handler_));
    Call call(std::move(self->call_));
    delete self;
    call(std::move(handler));
  }

  Handler handler_;
  Call call_;
};

}  // namespace detail

/// Calls `call(handler)` on the handler's own executor: for what cannot begin, as it has no engine.
/// Asio is given one type of function for each executor, and not one for each handler: that was a
/// sixth of all functions of a file that awaits verbs by name.
template <class Handler, class Call>
void post_without_engine(Handler&& handler, Call call) {
  using posted = detail::posted_call<std::decay_t<Handler>, Call>;
  const auto executor = executor_of(handler);  // before it is moved from
  std::decay_t<Handler> own(std::forward<Handler>(handler));
  asio::post(executor, detail::hop(*new posted(std::move(own), std::move(call))));
}

}  // namespace cohort::progress
