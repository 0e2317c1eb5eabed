// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::with_deadline`: bounds the time of any awaitable. And its opposite for what several
/// ranks do together, which is seen through to its end.

#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/operation.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace cohort {
namespace progress::detail {

/// Cancels an operation in flight when the time has come. Shared by the timer and the waiter.
struct deadline_timer {
  explicit deadline_timer(const asio::any_io_executor& executor) : timer(executor) {}
  asio::steady_timer timer;
  asio::cancellation_signal cancel;
  bool passed = false;
};

/// Stops the timer however the waiter leaves.
class deadline_guard {
 public:
  explicit deadline_guard(std::shared_ptr<deadline_timer> shared) noexcept
      : shared_(std::move(shared)) {}
  deadline_guard(const deadline_guard&) = delete;
  ~deadline_guard() { shared_->timer.cancel(); }

 private:
  std::shared_ptr<deadline_timer> shared_;
};

/// The caller's own cancellation goes on to the operation.
struct pass_on {
  std::weak_ptr<deadline_timer> shared;
  void operator()(asio::cancellation_type type) const {
    if (const auto alive = shared.lock()) alive->cancel.emit(type);
  }
};

struct spawn_with_deadline {
  template <class Handler, class T>
  void operator()(Handler&& handler, std::shared_ptr<deadline_timer> shared,
                  asio::awaitable<T> work) const {
    auto slot = asio::get_associated_cancellation_slot(handler);
    if (slot.is_connected()) slot.template emplace<pass_on>(pass_on{shared});
    const auto executor = executor_of(handler);
    // The frame of `work` keeps the signal alive through the bound handler.
    auto keeping = [handler = std::forward<Handler>(handler), shared](auto&&... results) mutable {
      std::move(handler)(std::forward<decltype(results)>(results)...);
    };
    asio::co_spawn(executor, std::move(work),
                   asio::bind_cancellation_slot(shared->cancel.slot(),
                                                asio::bind_executor(executor, std::move(keeping))));
  }
};

template <class T>
struct deadline_signature {
  using type = void(std::exception_ptr, T);
};
template <>
struct deadline_signature<void> {
  using type = void(std::exception_ptr);
};

}  // namespace progress::detail

/// Awaits `work`; when `limit` passes first, cancels it and throws `deadline_error`.
///
/// What cancelling means is the operation's own matter: a receive is given up; a collective over a
/// borrowed buffer cannot be, so it goes on, the communicator reports it (or ends the job, option
/// `on_deadline`), and the await returns with its result when MPI is done.
/// *Cancellation* is passed on. *Cost*: a timer and a coroutine.
/// *Example*: `co_await cohort::with_deadline(cohort::recv(world, buffer, 0, tag), 5s);`
template <class T>
asio::awaitable<T> with_deadline(asio::awaitable<T> work, std::chrono::nanoseconds limit) {
  namespace detail = progress::detail;
  const auto executor = co_await asio::this_coro::executor;
  const auto shared = std::make_shared<detail::deadline_timer>(executor);
  shared->timer.expires_after(limit);
  shared->timer.async_wait([weak = std::weak_ptr(shared)](const std::error_code& stopped) {
    const auto alive = weak.lock();
    if (stopped || !alive) return;
    alive->passed = true;
    const progress::deadline_emission by_deadline;
    alive->cancel.emit(asio::cancellation_type::terminal);
  });
  const detail::deadline_guard stop_timer(shared);
  try {
    if constexpr (std::is_void_v<T>) {
      co_await asio::async_initiate<const asio::use_awaitable_t<>,
                                    typename detail::deadline_signature<T>::type>(
          detail::spawn_with_deadline(), asio::use_awaitable, shared, std::move(work));
      co_return;
    } else {
      co_return co_await asio::async_initiate<const asio::use_awaitable_t<>,
                                              typename detail::deadline_signature<T>::type>(
          detail::spawn_with_deadline(), asio::use_awaitable, shared, std::move(work));
    }
  } catch (const std::system_error& failed) {
    if (!shared->passed || failed.code() != asio::error::operation_aborted) throw;
  }
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
  throw deadline_error("no completion within " + std::to_string(ms) + " ms");
}

/// The same for a future, whose operation runs already.
template <class T>
asio::awaitable<T> with_deadline(future<T>&& running, std::chrono::nanoseconds limit) {
  return with_deadline(static_cast<asio::awaitable<T>&&>(running), limit);
}

namespace progress {

/// Awaits `work`, which does not hear of it when the coroutine that awaits is cancelled: to end
/// between two collectives would leave the other ranks in the second. That coroutine can be
/// cancelled as before when `work` is over. *Cost*: a coroutine.
template <class T>
asio::awaitable<T> uncancelled(asio::awaitable<T> work) {
  const auto executor = co_await asio::this_coro::executor;
  auto apart =
      asio::co_spawn(executor, std::move(work),
                     asio::bind_cancellation_slot(asio::cancellation_slot(), asio::use_awaitable));
  co_return co_await std::move(apart);
}

}  // namespace progress
}  // namespace cohort
