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
  if constexpr (std::is_void_v<T>) {
    for (auto& one : futures) {
      try {
        co_await std::move(one);
      } catch (...) {
        if (!first_error) first_error = std::current_exception();
      }
    }
    if (first_error) std::rethrow_exception(first_error);
  } else {
    std::vector<T> values;
    values.reserve(futures.size());
    for (auto& one : futures) {
      try {
        values.push_back(co_await std::move(one));
      } catch (...) {
        if (!first_error) first_error = std::current_exception();
      }
    }
    if (first_error) std::rethrow_exception(first_error);
    co_return values;
  }
}

template <class Range>
requires std::ranges::input_range<Range> && progress::detail::is_awaitable<
    std::ranges::range_value_t<Range>>::value auto
when_all(Range awaitables) -> asio::awaitable<typename progress::detail::values_of<
    typename progress::detail::is_awaitable<std::ranges::range_value_t<Range>>::value_type>::type> {
  using value_type =
      typename progress::detail::is_awaitable<std::ranges::range_value_t<Range>>::value_type;
  const auto executor = co_await asio::this_coro::executor;
  std::vector<future<value_type>> started;
  for (auto& one : awaitables) {
    started.push_back(asio::co_spawn(executor, std::move(one), as_future));
  }
  co_return co_await when_all(std::move(started));
}

}  // namespace cohort
