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
    ~lap_end() { of.end_lap(); }
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
/// *Errors*: `std::errc::resource_deadlock_would_occur` inside a handler of this loop, where
/// `co_await` is what you want; errc::engine_stopped where somebody stops the context first. What
/// another handler throws, as `cohort::rethrow` does, comes out of here as it comes out of
/// `io.run()`. After these `work` is still in flight. *Cancellation*: that of `work`, by a deadline
/// say. *Cost*: four coroutine frames, two turns of the loop.
template <std::same_as<asio::io_context> Context, class T>
T sync_wait(Context& io, asio::awaitable<T>&& work) {
  if (io.get_executor().running_in_this_thread()) {
    throw std::system_error(std::make_error_code(std::errc::resource_deadlock_would_occur),
                            "sync_wait in a handler of its own loop");
  }
  auto done =
      asio::co_spawn(io, progress::detail::last_in_lap(use_engine(io), std::move(work)), as_future);
  if (progress::own_thread::runs(io)) return done.get();
  if (io.stopped()) io.restart();
  while (!done.is_ready()) {
    if (io.poll_one() != 0) continue;
    // Not for ever: another thread that runs the loop may take the last handler.
    if (io.run_one_for(std::chrono::milliseconds(50)) == 0 && io.stopped() && !done.is_ready()) {
      throw error(errc::engine_stopped, "sync_wait: the loop has ended first");
    }
  }
  return done.get();
}

}  // namespace cohort
