// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::when_all`: awaits a whole range of futures or awaitables.

#include <cohort/core/asio.hpp>
#include <cohort/progress/future.hpp>

#include <algorithm>
#include <cstddef>
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

/// The futures that one `when_all` waits for, so that a cancellation reaches all of them at once.
template <class T>
class future_range {
 public:
  /// `all` outlives this.
  explicit future_range(std::vector<future<T>>& all) : all_(all) {}

  /// Called before the first wait when the waiting coroutine can be cancelled: keeps the states
  /// from the slot, which may outlive the coroutine.
  void watch() {
    states_ = std::make_shared<std::vector<std::weak_ptr<future_state_base>>>();
    states_->reserve(all_.size());
    for (const auto& each : all_) states_->push_back(each.state_);
  }
  void cancel(asio::cancellation_type type) const { cancel_states{states_}(type); }

  [[nodiscard]] bool is_ready() const noexcept {
    return std::all_of(all_.begin(), all_.end(), [](const auto& each) { return each.is_ready(); });
  }
  /// Resumes `handler` when all are ready; this may be gone when it returns.
  void wait(awaitable_handler&& handler) {
    if (states_) {
      auto slot = asio::get_associated_cancellation_slot(handler);
      slot.template emplace<cancel_states>(cancel_states{states_});
    }
    left_.begin(all_.size(), std::move(handler));
    for (const auto& each : all_) each.state_->set_countdown(left_);
    left_.count();
  }
  /// Of a future that is ready.
  T take(std::size_t index) { return all_[index].state_->take(); }

 private:
  struct cancel_states {
    std::shared_ptr<std::vector<std::weak_ptr<future_state_base>>> states;
    void operator()(asio::cancellation_type type) const {
      const auto all = states;  // this may go when one of them completes at once
      for (const auto& each : *all) {
        if (const auto alive = each.lock()) future_state_base::cancel(alive, type);
      }
    }
  };

  std::vector<future<T>>& all_;
  std::shared_ptr<std::vector<std::weak_ptr<future_state_base>>> states_;
  countdown left_;
};

struct wait_for_range {
  template <class T>
  void operator()(awaitable_handler&& handler, future_range<T>* all) const {
    all->wait(std::move(handler));
  }
};

}  // namespace progress::detail

/// Waits for all futures, which have started already, then returns their values in order, or throws
/// the first error by index. Nothing is cancelled when one fails: all are finished when it returns.
/// *Cancellation* is passed on to all that are not ready, at once.
/// *Cost*: one frame, and a list of the futures where the caller can be cancelled.
/// *Example*: `co_await cohort::when_all(std::move(fs));`
template <class T>
asio::awaitable<typename progress::detail::values_of<T>::type> when_all(
    std::vector<future<T>> futures);

/// The same for lazy awaitables: starts each, in range order, on the caller's executor.
/// *Cancellation* is passed on to all that run, at once. *Cost*: one coroutine each.
template <class Range>
  requires std::ranges::input_range<Range> &&
           progress::detail::is_awaitable<std::ranges::range_value_t<Range>>::value
auto when_all(Range awaitables) -> asio::awaitable<typename progress::detail::values_of<
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
  progress::detail::future_range<T> range(futures);
  const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
  if (state.slot().is_connected()) {
    range.watch();
    if (state.cancelled() != asio::cancellation_type::none) range.cancel(state.cancelled());
  }
  if (!range.is_ready()) {
    progress::detail::future_range<T>* in_this_frame = &range;
    co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
        progress::detail::wait_for_range{}, asio::use_awaitable, in_this_frame);
  }
  for (std::size_t i = 0; i < futures.size(); ++i) {
    try {
      if constexpr (std::is_void_v<T>) {
        range.take(i);
      } else {
        values.push_back(range.take(i));
      }
    } catch (...) {
      if (!first_error) first_error = std::current_exception();
    }
  }
  co_await asio::this_coro::throw_if_cancelled(throws);
  if (first_error) std::rethrow_exception(first_error);
  if constexpr (!std::is_void_v<T>) co_return values;
}

template <class Range>
  requires std::ranges::input_range<Range> &&
           progress::detail::is_awaitable<std::ranges::range_value_t<Range>>::value
auto when_all(Range awaitables) -> asio::awaitable<typename progress::detail::values_of<
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
