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
#include <cohort/progress/detail/future_handler.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/future.hpp>

#include <chrono>
#include <concepts>
#include <exception>
#include <system_error>
#include <type_traits>
#include <utility>

namespace cohort {

namespace progress::detail {

/// Runs what it is given at once, and what must not run at once in the loop.
class here_executor {
 public:
  using loop_executor = asio::io_context::executor_type;
  explicit here_executor(loop_executor loop) noexcept : loop_(loop) {}

  template <class Function>
  void execute(Function function) const {
    std::move(function)();
  }
  [[nodiscard]] asio::execution_context& query(asio::execution::context_t) const noexcept {
    return loop_.context();
  }
  [[nodiscard]] auto require(asio::execution::blocking_t::never_t never) const {
    return asio::require(loop_, never);
  }
  friend bool operator==(const here_executor&, const here_executor&) = default;

 private:
  loop_executor loop_;
};

/// Fills the state where the coroutine ends: no turn of the loop comes between.
template <class T>
class end_of_wait {
  using fills = std::conditional_t<std::is_void_v<T>, future_handler<std::exception_ptr>,
                                   future_handler<std::exception_ptr, T>>;

 public:
  using executor_type = here_executor;
  end_of_wait(state_ptr<T> state, const executor_type& where)
      : handler_(std::move(state)), where_(where) {}

  [[nodiscard]] executor_type get_executor() const noexcept { return where_; }
  template <class... Values>
  void operator()(std::exception_ptr error, Values&&... values) {
    handler_(std::move(error), std::forward<Values>(values)...);
  }

 private:
  fills handler_;
  executor_type where_;
};

}  // namespace progress::detail

/// Runs `work`, a coroutine or a future, to its end and returns its result, or throws its
/// exception. The loop of `io` is run here for so long, and whatever else is ready in it goes on
/// too; what is still pending then waits for the next call. Where a `progress_thread` runs the
/// loop, this thread sleeps until `work` has ended there.
///
/// *Errors*: before anything is started, `std::errc::resource_deadlock_would_occur` inside a
/// handler of this loop, where `co_await` is what you want, and errc::wrong_thread where a thread
/// of the program's own has run the loop and not stopped it. errc::engine_stopped where
/// somebody stops the context first, and what another handler throws, as `cohort::rethrow` does, as
/// it comes out of `io.run()`: after these two `work` is still in flight. *Cancellation*: that of
/// `work`, by a deadline say. *Cost*: three coroutine frames, one turn of the loop.
template <std::same_as<asio::io_context> Context, class T>
T sync_wait(Context& io, asio::awaitable<T>&& work) {
  progress::engine& engine = use_engine(io);
  progress::engine::in_place place(engine);
  place.begin();
  const auto done = progress::detail::make_state<T>();
  asio::co_spawn(
      io, std::move(work),
      progress::detail::end_of_wait<T>(done, progress::detail::here_executor(io.get_executor())));
  done->wait_in(place, true);
  return done->take();
}

/// The same for what has been started already. What is still in flight after an error stays in
/// `work`. *Errors*: also errc::invalid_argument where it belongs to another loop.
template <std::same_as<asio::io_context> Context, class T>
T sync_wait(Context& io, future<T>&& work) {
  progress::engine& engine = use_engine(io);
  const progress::engine* const its = work.get_engine();
  if (its != nullptr && its != &engine && !its->has_own_thread()) {
    throw error(errc::invalid_argument, "sync_wait: the operation belongs to another loop");
  }
  progress::engine::in_place place(engine);
  place.begin();
  return work.get_in(place);
}

}  // namespace cohort
