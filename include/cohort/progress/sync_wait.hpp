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
#include <cohort/progress/future.hpp>

#include <chrono>
#include <concepts>
#include <system_error>
#include <utility>

namespace cohort {

namespace progress::detail {

/// The lap in which `work` ends, ends with it, for somebody waits for the loop's turn to end.
template <class T>
asio::awaitable<T> last_in_lap(engine& of, asio::awaitable<T> work) {
  struct lap_end {
    explicit lap_end(engine& lapping) noexcept : of(lapping) {}
    lap_end(const lap_end&) = delete;
    ~lap_end() { of.end_wait(); }
    engine& of;
  };
  const lap_end with_this(of);
  co_return co_await std::move(work);
}

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
/// `work`, by a deadline say. *Cost*: four coroutine frames, two turns of the loop.
template <std::same_as<asio::io_context> Context, class T>
T sync_wait(Context& io, asio::awaitable<T>&& work) {
  progress::engine& engine = use_engine(io);
  progress::engine::in_place place(engine);
  place.begin();
  auto done = asio::co_spawn(io, progress::detail::last_in_lap(engine, std::move(work)), as_future);
  return done.get_in(place, true);
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
