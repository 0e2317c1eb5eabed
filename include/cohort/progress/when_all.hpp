// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::when_all`: awaits a whole range of futures or awaitables.

#include <cohort/core/asio.hpp>
#include <cohort/progress/future.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <span>  // brings the range concepts
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {
namespace progress::detail {

template <class T>
struct is_awaitable : std::false_type {};
template <class T>
struct is_awaitable<asio::awaitable<T>> : std::true_type {
  using value_type = T;
};

/// The result of all: nothing, or the values in order.
template <class T>
struct values_of {
  using type = std::vector<T>;
};
template <>
struct values_of<void> {
  using type = void;
};

}  // namespace progress::detail

/// Waits for all futures, which have started already, then returns their values in order, or throws
/// the first error by index. Nothing is cancelled when one fails: all are finished when it returns.
/// *Cancellation* is passed on to all.
/// *Cost*: no allocation beyond one frame. *Example*: `co_await cohort::when_all(std::move(fs));`
template <class T>
asio::awaitable<typename progress::detail::values_of<T>::type> when_all(
    std::vector<future<T>> futures);

/// The same for lazy awaitables: starts each, in range order, on the caller's executor.
/// *Cancellation* is passed on to all. *Cost*: one coroutine each.
template <class Range>
requires std::ranges::input_range<Range> && progress::detail::is_awaitable<
    std::ranges::range_value_t<Range>>::value auto
when_all(Range awaitables) -> asio::awaitable<typename progress::detail::values_of<
    typename progress::detail::is_awaitable<std::ranges::range_value_t<Range>>::value_type>::type>;

// ---- implementation ------------------------------------------------------------------------

template <class T>
asio::awaitable<typename progress::detail::values_of<T>::type> when_all(
    std::vector<future<T>> futures) {
  std::exception_ptr first_error;
  std::conditional_t<std::is_void_v<T>, std::vector<char>, std::vector<T>> values;
  values.reserve(futures.size());
  // A cancelled coroutine cannot wait, unless it says so; and a future that is dropped while its
  // operation runs would be waited for in place.
  const bool throws = co_await asio::this_coro::throw_if_cancelled();
  co_await asio::this_coro::throw_if_cancelled(false);
  for (auto& one : futures) {
    try {
      if constexpr (std::is_void_v<T>) {
        co_await std::move(one);
      } else {
        values.push_back(co_await std::move(one));
      }
    } catch (...) {
      if (!first_error) first_error = std::current_exception();
    }
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    const asio::cancellation_type cancelled = state.cancelled();
    if (cancelled == asio::cancellation_type::none) continue;
    for (auto& other : futures) {
      if (!other.is_ready()) other.cancel(cancelled);
    }
  }
  co_await asio::this_coro::throw_if_cancelled(throws);
  if (first_error) std::rethrow_exception(first_error);
  if constexpr (!std::is_void_v<T>) co_return values;
}

template <class Range>
requires std::ranges::input_range<Range> && progress::detail::is_awaitable<
    std::ranges::range_value_t<Range>>::value auto
when_all(Range awaitables) -> asio::awaitable<typename progress::detail::values_of<
    typename progress::detail::is_awaitable<std::ranges::range_value_t<Range>>::value_type>::type> {
  using value_type =
      typename progress::detail::is_awaitable<std::ranges::range_value_t<Range>>::value_type;
  const auto executor = co_await asio::this_coro::executor;
  const auto state = co_await asio::this_coro::cancellation_state;
  const bool throws = co_await asio::this_coro::throw_if_cancelled();
  if (throws && state.cancelled() != asio::cancellation_type::none) {
    throw std::system_error(asio::error::operation_aborted, "when_all");  // nothing has started
  }
  std::vector<future<value_type>> started;
  for (auto& one : awaitables) {
    started.push_back(asio::co_spawn(executor, std::move(one), as_future));
  }
  co_return co_await when_all(std::move(started));
}

}  // namespace cohort
