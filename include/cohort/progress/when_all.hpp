// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::when_all`: awaits several futures or awaitables together, given one by one or in a
/// range.
///
/// \code
/// std::vector<double> out(100), in(100);
/// double loss = 0;
/// auto sent = cohort::send(world, out, world.rank(), 7, cohort::as_future);
/// auto received = cohort::recv(world, in, world.rank(), 7, cohort::as_future);
/// auto mean = cohort::all_reduce(world, loss, cohort::op::average, cohort::as_future);
/// const cohort::status st =  // of the one that has a result
///     co_await cohort::when_all(std::move(sent), std::move(received), std::move(mean));
/// std::printf("%zu numbers\n", st.count<double>());
/// \endcode

#include <cohort/core/asio.hpp>
#include <cohort/progress/detail/each_future.hpp>
#include <cohort/progress/future.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <span>  // brings the range concepts
#include <system_error>
#include <tuple>
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

/// What there is of the value of a future, in a tuple.
template <class T>
using values_of = std::conditional_t<std::is_void_v<T>, std::tuple<>, std::tuple<T>>;

/// The result of all: nothing, or the values in order.
template <class Futures>
struct result_of_all;
template <class T>
struct result_of_all<std::vector<future<T>>> {
  using type = std::conditional_t<std::is_void_v<T>, void, std::vector<T>>;
};
template <class... T>
struct result_of_all<std::tuple<future<T>...>> {
  template <class... Values>
  static value_of<Values...> shape(std::tuple<Values...>*);
  using all = decltype(std::tuple_cat(std::declval<values_of<T>>()...));
  using type = typename decltype(shape(static_cast<all*>(nullptr)))::type;
};

/// The futures that one `when_all` waits for, so that a cancellation reaches all of them at once.
/// `Futures` is a vector or a tuple of them.
template <class Futures>
class all_futures {
 public:
  using result = typename result_of_all<Futures>::type;

  /// `all` outlives this.
  explicit all_futures(Futures& all) : all_(all) {
    each_future(all_, [this](const auto&) { ++size_; });
  }

  /// Called before the first wait when the waiting coroutine can be cancelled: keeps the states
  /// from the slot, which may outlive the coroutine.
  void watch() {
    states_ = std::make_shared<std::vector<std::weak_ptr<future_state_base>>>();
    states_->reserve(size_);
    each_future(all_, [this](const auto& each) { states_->push_back(future_access::state(each)); });
  }
  void cancel(asio::cancellation_type type) const { cancel_states{states_}(type); }

  [[nodiscard]] bool is_ready() const noexcept {
    bool all_are = true;
    each_future(all_, [&all_are](const auto& each) { all_are = all_are && each.is_ready(); });
    return all_are;
  }
  /// Resumes `handler` when all are ready; this may be gone when it returns.
  void wait(awaitable_handler&& handler) {
    if (states_) {
      auto slot = asio::get_associated_cancellation_slot(handler);
      slot.template emplace<cancel_states>(cancel_states{states_});
    }
    left_.begin(size_, std::move(handler));
    each_future(all_,
                [this](const auto& each) { future_access::state(each)->set_countdown(left_); });
    left_.told();
  }
  /// Of futures that are all ready: what they give, or the first error.
  result take() {
    std::exception_ptr first;
    each_future(all_, [&first](const auto& each) {
      if (!first) first = future_access::state(each)->error();
    });
    if (first) std::rethrow_exception(first);
    if constexpr (!std::is_void_v<result>) return take_values(all_);
  }

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

  template <class T>
  static std::vector<T> take_values(std::vector<future<T>>& all) {
    std::vector<T> values;
    values.reserve(all.size());
    for (auto& each : all) values.push_back(future_access::state(each)->take());
    return values;
  }
  template <class... T>
  static result take_values(std::tuple<future<T>...>& all) {
    auto values = std::apply(
        [](auto&... each) { return std::tuple_cat(take_value(*future_access::state(each))...); },
        all);
    if constexpr (std::tuple_size_v<decltype(values)> == 1) {
      return std::get<0>(std::move(values));
    } else {
      return values;
    }
  }
  template <class T>
  static values_of<T> take_value(future_state<T>& of) {
    if constexpr (std::is_void_v<T>) {
      return {};
    } else {
      return values_of<T>(of.take());
    }
  }

  Futures& all_;
  std::size_t size_ = 0;
  std::shared_ptr<std::vector<std::weak_ptr<future_state_base>>> states_;
  countdown left_;
};

struct wait_for_all {
  template <class Futures>
  void operator()(awaitable_handler&& handler, all_futures<Futures>* all) const {
    all->wait(std::move(handler));
  }
};

template <class Futures>
asio::awaitable<typename result_of_all<Futures>::type> await_all(Futures futures) {
  // A cancelled coroutine cannot wait, unless it says so; and a future that is dropped while its
  // operation runs would be waited for in place.
  const bool throws = co_await asio::this_coro::throw_if_cancelled();
  co_await asio::this_coro::throw_if_cancelled(false);
  all_futures<Futures> all(futures);
  const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
  if (state.slot().is_connected()) {
    all.watch();
    if (state.cancelled() != asio::cancellation_type::none) all.cancel(state.cancelled());
  }
  if (!all.is_ready()) {
    all_futures<Futures>* in_this_frame = &all;
    co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
        wait_for_all{}, asio::use_awaitable, in_this_frame);
  }
  co_await asio::this_coro::throw_if_cancelled(throws);
  co_return all.take();
}

/// Of a coroutine that was cancelled before it starts anything.
inline void throw_cancelled(asio::cancellation_type cancelled, bool throws) {
  if (!throws || cancelled == asio::cancellation_type::none) return;
  throw std::system_error(asio::error::operation_aborted, "when_all");
}

}  // namespace progress::detail

/// Waits for all futures, which have started already, then returns their values in order, or throws
/// the first error by index. Nothing is cancelled when one fails: all are finished when it returns.
/// Where the futures are of different types, make it a vector of `future<>`, or see below.
/// *Cancellation* is passed on to all that are not ready, at once.
/// *Cost*: one frame, and a list of the futures where the caller can be cancelled.
/// *Example*: `co_await cohort::when_all(std::move(fs));`
template <class T>
auto when_all(std::vector<future<T>> futures)
    -> asio::awaitable<typename progress::detail::result_of_all<std::vector<future<T>>>::type>;

/// The same for futures of any types. The result is as of one operation that gives all these
/// values, and as that of Asio's `&&`: futures of `void` are left out; of the others one gives its
/// value, and several a `std::tuple`, in order. *Cost*: as above, however many there are.
/// *Example*: `auto [x, y] = co_await cohort::when_all(std::move(fx), std::move(fy));`
template <class... T>
  requires(sizeof...(T) > 0)
auto when_all(future<T>... futures)
    -> asio::awaitable<typename progress::detail::result_of_all<std::tuple<future<T>...>>::type>;

/// The same for lazy awaitables: starts each, in range order, on the caller's executor.
/// *Cancellation* is passed on to all that run, at once. *Cost*: one coroutine each.
template <class Range>
  requires std::ranges::input_range<Range> &&
           progress::detail::is_awaitable<std::ranges::range_value_t<Range>>::value
auto when_all(Range awaitables)
    -> asio::awaitable<typename progress::detail::result_of_all<std::vector<future<
        typename progress::detail::is_awaitable<std::ranges::range_value_t<Range>>::value_type>>>::
                           type>;

/// The same for awaitables of any types, and for futures among them.
/// *Example*: `co_await cohort::when_all(load(part), cohort::barrier(world));`
template <class... T>
  requires(sizeof...(T) > 0)
auto when_all(asio::awaitable<T>... awaitables)
    -> asio::awaitable<typename progress::detail::result_of_all<std::tuple<future<T>...>>::type>;

// ---- implementation ------------------------------------------------------------------------

template <class T>
auto when_all(std::vector<future<T>> futures)
    -> asio::awaitable<typename progress::detail::result_of_all<std::vector<future<T>>>::type> {
  return progress::detail::await_all(std::move(futures));
}

template <class... T>
  requires(sizeof...(T) > 0)
auto when_all(future<T>... futures)
    -> asio::awaitable<typename progress::detail::result_of_all<std::tuple<future<T>...>>::type> {
  return progress::detail::await_all(std::tuple<future<T>...>(std::move(futures)...));
}

template <class Range>
  requires std::ranges::input_range<Range> &&
           progress::detail::is_awaitable<std::ranges::range_value_t<Range>>::value
auto when_all(Range awaitables)
    -> asio::awaitable<typename progress::detail::result_of_all<std::vector<future<
        typename progress::detail::is_awaitable<std::ranges::range_value_t<Range>>::value_type>>>::
                           type> {
  using value_type =
      typename progress::detail::is_awaitable<std::ranges::range_value_t<Range>>::value_type;
  const auto executor = co_await asio::this_coro::executor;
  const auto state = co_await asio::this_coro::cancellation_state;
  const bool throws = co_await asio::this_coro::throw_if_cancelled();
  progress::detail::throw_cancelled(state.cancelled(), throws);
  std::vector<future<value_type>> started;
  for (auto& one : awaitables) {
    started.push_back(asio::co_spawn(executor, std::move(one), as_future));
  }
  co_return co_await when_all(std::move(started));
}

template <class... T>
  requires(sizeof...(T) > 0)
auto when_all(asio::awaitable<T>... awaitables)
    -> asio::awaitable<typename progress::detail::result_of_all<std::tuple<future<T>...>>::type> {
  const auto executor = co_await asio::this_coro::executor;
  const auto state = co_await asio::this_coro::cancellation_state;
  const bool throws = co_await asio::this_coro::throw_if_cancelled();
  progress::detail::throw_cancelled(state.cancelled(), throws);
  std::tuple<future<T>...> started{
      asio::co_spawn(executor, std::move(awaitables), as_future)...};  // from left to right
  co_return co_await progress::detail::await_all(std::move(started));
}

}  // namespace cohort
