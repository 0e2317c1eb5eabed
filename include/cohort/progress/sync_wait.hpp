// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `sync_wait`: from code that is no coroutine, runs a coroutine to its end and returns its result.
///
/// \code
/// #include <cohort/progress.hpp>
///
/// #include <chrono>
/// #include <cstdio>
///
/// asio::awaitable<int> after(int ms) {
///   asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(ms));
///   co_await timer.async_wait(asio::use_awaitable);
///   co_return ms;
/// }
/// int main() {
///   asio::io_context io;
///   const int first = cohort::sync_wait(io, after(1));   // as often as you like,
///   const int second = cohort::sync_wait(io, after(2));  // with no restart() in between
///   std::printf("%d\n", first + second);
/// }
/// \endcode

#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/engine.hpp>

#include <atomic>
#include <chrono>
#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace cohort {

namespace progress::detail {

/// What a coroutine leaves to the thread that waits for it; theirs together, for the thread may go
/// on before the coroutine has ended, with an exception.
template <class T>
class waited_for {
 public:
  explicit waited_for(engine& of) noexcept : engine_(of) {}

  [[nodiscard]] bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  void sleep_until_done() const noexcept { done_.wait(false, std::memory_order_acquire); }
  T take() {
    if (error_) std::rethrow_exception(std::move(error_));
    if constexpr (!std::is_void_v<T>) return std::move(*value_);
  }

  template <class... Value>
  void end(std::exception_ptr why, Value&&... value) {
    if (!why) value_.emplace(std::forward<Value>(value)...);
    error_ = std::move(why);
    done_.store(true, std::memory_order_release);
    done_.notify_all();
    engine_.end_lap();
  }

 private:
  struct nothing {};

  engine& engine_;
  std::atomic<bool> done_{false};
  std::exception_ptr error_;
  std::optional<std::conditional_t<std::is_void_v<T>, nothing, T>> value_;
};

}  // namespace progress::detail

/// Runs `work`, a coroutine or a future, to its end and returns its result, or throws its
/// exception. The loop of `io` is run here for so long, and whatever else is ready in it goes on
/// too; what is still pending then waits for the next call. Where a `progress_thread` runs the
/// loop, this thread sleeps until `work` has ended there.
///
/// *Errors*: `std::errc::resource_deadlock_would_occur` inside a handler of this loop, where
/// `co_await` is what you want; errc::engine_stopped where somebody stops the context first. What
/// another handler throws, as `cohort::rethrow` does, comes out of here as it comes out of
/// `io.run()`. After these `work` is still in flight. *Cancellation*: that of `work`, by a deadline
/// say. *Cost*: two coroutine frames and two turns of the loop.
template <std::same_as<asio::io_context> Context, class T>
T sync_wait(Context& io, asio::awaitable<T>&& work) {
  if (io.get_executor().running_in_this_thread()) {
    throw std::system_error(std::make_error_code(std::errc::resource_deadlock_would_occur),
                            "sync_wait in a handler of its own loop");
  }
  const auto state = std::make_shared<progress::detail::waited_for<T>>(use_engine(io));
  if constexpr (std::is_void_v<T>) {
    asio::co_spawn(io, std::move(work),
                   [state](std::exception_ptr why) { state->end(std::move(why)); });
  } else {
    asio::co_spawn(io, std::move(work), [state](std::exception_ptr why, T value) {
      state->end(std::move(why), std::move(value));
    });
  }
  if (progress::own_thread::runs(io)) {
    state->sleep_until_done();
    return state->take();
  }
  if (io.stopped()) io.restart();
  while (!state->is_done()) {
    if (io.poll_one() != 0) continue;
    // Not for ever: another thread that runs the loop may take the last handler.
    if (io.run_one_for(std::chrono::milliseconds(50)) == 0 && io.stopped() && !state->is_done()) {
      throw error(errc::engine_stopped, "sync_wait: the loop has ended first");
    }
  }
  return state->take();
}

}  // namespace cohort
