// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Something that coroutines of one loop wait for.

#include <cohort/core/asio.hpp>

#include <chrono>
#include <concepts>
#include <exception>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>

namespace cohort::cluster {

/// So much later than now; the end of all times if that is further than a clock can tell.
[[nodiscard]] inline std::chrono::steady_clock::time_point from_now(std::chrono::nanoseconds time) {
  using clock = std::chrono::steady_clock;
  const auto now = clock::now();
  if (time >= clock::time_point::max() - now) return clock::time_point::max();
  return now + std::chrono::duration_cast<clock::duration>(time);
}

/// asio::use_awaitable for the bodies of templates with one instance (`template <class Any>`): what
/// depends on no parameter would be compiled by who only includes it.
template <class Any>
inline constexpr auto awaiting = asio::use_awaitable;

/// Runs a coroutine beside what calls this, until it ends or `stop` says so; then calls `ended`
/// with what it has thrown. (Of one type, because each type of handler costs a coroutine of Asio.)
template <std::same_as<asio::io_context> Context>
void run_beside(Context& io, asio::awaitable<void> work,
                std::function<void(std::exception_ptr)> ended, asio::cancellation_slot stop = {}) {
  asio::co_spawn(io, std::move(work), asio::bind_cancellation_slot(stop, std::move(ended)));
}

/// Wakes everybody who waits at the moment. Who waits looks at the condition again.
template <class Any>
class basic_event {
 public:
  explicit basic_event(asio::io_context& io)
      : timer_(std::make_shared<asio::steady_timer>(io, asio::steady_timer::time_point::max())) {}

  void notify() { timer_->cancel(); }

  /// Until `notify`, or the limit. Throws operation_aborted if the coroutine is cancelled.
  asio::awaitable<void> wait() {
    std::error_code woken;
    co_await timer_->async_wait(asio::redirect_error(awaiting<Any>, woken));
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) {
      throw std::system_error(asio::error::operation_aborted);
    }
  }
  /// The same with a limit; false if it has passed.
  asio::awaitable<bool> wait_until(std::chrono::steady_clock::time_point limit) {
    if (std::chrono::steady_clock::now() >= limit) co_return false;
    asio::steady_timer clock(timer_->get_executor(), limit);
    // It wakes the one timer that all wait for; the event may be gone by then.
    clock.async_wait([timer = timer_](std::error_code stopped) {
      if (!stopped) timer->cancel();
    });
    co_await wait();
    co_return std::chrono::steady_clock::now() < limit;
  }
  /// Waits for as long as the condition holds; false if the limit has passed while it did.
  asio::awaitable<bool> wait_while(std::function<bool()> holds,
                                   std::chrono::steady_clock::time_point limit) {
    bool in_time = true;
    while (in_time && holds()) in_time = co_await wait_until(limit);
    co_return in_time;
  }

 private:
  std::shared_ptr<asio::steady_timer> timer_;
};
using event = basic_event<void>;

}  // namespace cohort::cluster
