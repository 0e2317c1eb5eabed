// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::future<T>`: an operation that has already started, to be awaited later.
///
/// \code
/// std::vector<float> gradient(1 << 20);
/// auto sum = cohort::all_reduce(world, gradient, cohort::op::sum, cohort::as_future);
/// cohort::poll(world);                // it has started: compute, and look now and then
/// if (!sum.is_ready()) std::puts("still in flight");
/// co_await std::move(sum);            // the result, or an exception
/// \endcode

#include <cohort/core/asio.hpp>
#include <cohort/progress/detail/future_handler.hpp>
#include <cohort/progress/detail/future_state.hpp>

#include <coroutine>
#include <type_traits>
#include <utility>

namespace cohort {

namespace progress::detail {
struct future_access;
}  // namespace progress::detail

/// The token that starts an operation now and returns a \ref future.
struct as_future_t {
  constexpr as_future_t() noexcept {}  // user-provided: g++ 12, see tests/compilers/gcc12.cpp
};
inline constexpr as_future_t as_future{};

/// The result of an operation in flight.
///
/// It is eager: `as_future` has started the operation. Await it once with `co_await std::move(f)`,
/// from any coroutine; or call `get()` from a thread that does not run the loop. It derives from
/// `asio::awaitable<T>`, so `&&`, `||`, `co_spawn` and `when_all` take it.
///
/// *Dropped* while in flight: over a borrowed buffer the destructor gives up a receive, and waits
/// inside MPI for that request, 30 s at most (2 s for everything together while an exception is on
/// its way), then names it and ends the job, because MPI would go on writing into freed memory.
/// Over a buffer that the operation owns it lets go. The duty is the coroutine frame's, so it moves
/// with the awaitable.
///
/// A future of a value becomes a `future<>` where one is wanted, in a vector of them say: it is the
/// same operation, with its errors and the same duty, and the value is thrown away.
///
/// *Cancellation* of the await is cancellation of the operation. *Cost*: one coroutine frame; one
/// more for the `future<>` of a value.
template <class T = void>
class [[nodiscard]] future : public asio::awaitable<T> {
 public:
  using value_type = T;

  /// For the token: a future of the operation that fills `shared`.
  explicit future(progress::detail::state_ptr<T> shared)
      : asio::awaitable<T>(progress::detail::wait_for(progress::detail::state_duty<T>(shared))),
        state_(std::move(shared)) {}
  future(future&& other) noexcept = default;
  /// *Example*: `all.push_back(cohort::recv(world, x, 0, tag, cohort::as_future));`
  template <class Value>
    requires(std::is_void_v<T> && !std::is_void_v<Value>)
  future(future<Value>&& other);  // NOLINT: converting
  /// Swaps, so that no frame leaks (Asio 1.22 forgets the old one).
  future& operator=(future&& other) noexcept {
    asio::awaitable<T> mine(static_cast<asio::awaitable<T>&&>(*this));
    static_cast<asio::awaitable<T>&>(*this) = static_cast<asio::awaitable<T>&&>(other);
    static_cast<asio::awaitable<T>&>(other) = std::move(mine);
    state_.swap(other.state_);
    return *this;
  }
  ~future() = default;

  /// True once the result is there; awaiting then does not suspend.
  [[nodiscard]] bool is_ready() const noexcept { return state_ && state_->is_ready(); }
  /// False after the future was moved from.
  [[nodiscard]] bool valid() const noexcept { return asio::awaitable<T>::valid(); }

  /// Asks the operation to stop, as cancelling the await does. From any thread: an operation that
  /// is not cohort's own, a coroutine say, is told by its executor, at once if that is here.
  void cancel(asio::cancellation_type type = asio::cancellation_type::terminal) {
    if (state_) progress::detail::future_state_base::cancel(state_, type);
  }

  /// Blocks until the result is there and returns it or throws its error. For plain threads: on the
  /// loop's own thread it throws `std::errc::resource_deadlock_would_occur`, for there nobody would
  /// be left to make progress. After a second in which nobody ran the loop of an operation of
  /// cohort it says so in the log, once, and waits on. (Behind an adapter like `as_tuple` older
  /// versions of Asio do not say where an operation that is not cohort's own runs: there `get()`
  /// blocks on any thread, and `cancel()` is for the thread that runs it.)
  T get() {
    const auto state = state_;
    state->wait_blocking();
    const asio::awaitable<T> done(std::move(*this));  // its frame has no duty left
    return state->take();
  }

  /// The same for a thread that laps in place of the loop.
  T get_in(progress::engine::in_place& place, bool by_loop = false) {
    const auto state = state_;
    state->wait_in(place, by_loop);
    const asio::awaitable<T> done(std::move(*this));
    return state->take();
  }

  /// Where an operation of the library's own belongs to; else null.
  [[nodiscard]] progress::engine* get_engine() const noexcept { return state_->get_engine(); }

  /// For coroutines of other libraries: resumes on the loop's thread.
  auto operator co_await() && noexcept;

 private:
  friend struct progress::detail::future_access;
  progress::detail::state_ptr<T> state_;
};

namespace progress::detail {

struct future_access {
  template <class T>
  [[nodiscard]] static const state_ptr<T>& state(const future<T>& of) noexcept {
    return of.state_;
  }
};

/// Has the duty of the future that it is given.
template <class T>
asio::awaitable<void> without_value(future<T> running) {
  static_cast<void>(co_await std::move(running));
}

}  // namespace progress::detail

template <class T>
template <class Value>
  requires(std::is_void_v<T> && !std::is_void_v<Value>)
future<T>::future(future<Value>&& other) : state_(progress::detail::future_access::state(other)) {
  static_cast<asio::awaitable<T>&>(*this) = progress::detail::without_value(std::move(other));
}

template <class T>
auto future<T>::operator co_await() && noexcept {
  class awaiter {
   public:
    explicit awaiter(future&& awaited) noexcept : self_(std::move(awaited)) {}
    awaiter(awaiter&&) noexcept = default;
    /// Also when the waiting coroutine is destroyed.
    ~awaiter() {
      if (self_.state_) self_.state_->withdraw_waiter();
    }
    [[nodiscard]] bool await_ready() const noexcept { return self_.is_ready(); }
    bool await_suspend(std::coroutine_handle<> caller) { return self_.state_->set_waiter(caller); }
    T await_resume() { return self_.state_->take(); }

   private:
    future self_;
  };
  return awaiter(std::move(*this));
}

}  // namespace cohort

/// Makes `as_future` a completion token for every asynchronous operation, cohort's or Asio's.
template <class R, class... Args>
class asio::async_result<cohort::as_future_t, R(Args...)> {
  using handler = cohort::progress::detail::future_handler<std::decay_t<Args>...>;

 public:
  using return_type = cohort::future<typename handler::value_type>;

  template <class Initiation, class Token, class... InitArgs>
  static return_type initiate(Initiation&& initiation, Token&&, InitArgs&&... args) {
    auto state = cohort::progress::detail::make_state<typename handler::value_type>();
    if constexpr (requires { asio::any_io_executor(initiation.get_executor()); }) {
      state->runs_on(initiation.get_executor());  // cohort's own operations tell their engine
    }
    std::forward<Initiation>(initiation)(handler(state), std::forward<InitArgs>(args)...);
    return return_type(std::move(state));
  }
};
