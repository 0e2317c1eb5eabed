// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::when_any`: waits until one of several futures is ready, and says which.
///
/// \code
/// std::vector<std::vector<double>> parts(world.size(), std::vector<double>(1000));
/// std::vector<cohort::future<cohort::status>> results;  // of the ranks, in any order
/// for (int r = 0; r < world.size(); ++r) {
///   results.push_back(cohort::recv(world, parts[r], r, 7, cohort::as_future));
/// }
/// for (std::size_t left = results.size(); left != 0; --left) {
///   const std::size_t i = co_await cohort::when_any(results);
///   co_await std::move(results[i]);  // its result or its error; it is passed over from now on
///   std::printf("rank %zu is there\n", i);
/// }
/// \endcode

#include <cohort/core/asio.hpp>
#include <cohort/progress/detail/each_future.hpp>
#include <cohort/progress/future.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>  // brings the range concepts
#include <system_error>
#include <tuple>
#include <utility>

namespace cohort {
namespace progress::detail {

/// The futures that one `when_any` waits for. `Futures` is a range or a tuple, by reference.
template <class Futures>
class first_future final : public countdown {
 public:
  explicit first_future(Futures all) noexcept : all_(all) {}

  /// The first that is ready. One that was awaited is none any more.
  [[nodiscard]] static std::optional<std::size_t> ready(Futures all) {
    std::optional<std::size_t> first;
    std::size_t index = 0;
    each_future(all, [&](const auto& each) {
      if (!first && each.valid() && each.is_ready()) first = index;
      ++index;
    });
    return first;
  }
  [[nodiscard]] static std::size_t count_valid(Futures all) {
    std::size_t valid = 0;
    each_future(all, [&valid](const auto& each) { valid += each.valid() ? 1 : 0; });
    return valid;
  }

  /// Resumes `handler` when one is ready, or the wait is cancelled; this may be gone when it
  /// returns.
  void wait(awaitable_handler&& handler, const std::shared_ptr<countdown>& self) {
    auto slot = asio::get_associated_cancellation_slot(handler);
    if (slot.is_connected()) slot.template emplace<stop_waiting>(stop_waiting{self});
    begin(count_valid(all_), std::move(handler), &let_go);
    each_future(all_, [this](const auto& each) {
      if (each.valid()) future_access::state(each)->set_countdown(*this);
    });
    told();
  }

 private:
  /// May stay in the slot for longer than the coroutine waits, or lives.
  struct stop_waiting {
    std::weak_ptr<countdown> waiting;
    void operator()(asio::cancellation_type type) const {
      const auto alive = waiting.lock();  // this may go when the coroutine is resumed
      if (alive && type != asio::cancellation_type::none) alive->end();
    }
  };

  static void let_go(countdown& of) noexcept {
    each_future(static_cast<first_future&>(of).all_, [&of](const auto& each) {
      if (each.valid() && future_access::state(each)->withdraw_waiter()) of.count();
    });
  }

  Futures all_;
};

struct wait_for_first {
  template <class Futures>
  void operator()(awaitable_handler&& handler,
                  const std::shared_ptr<first_future<Futures>>* first) const {
    (*first)->wait(std::move(handler), *first);
  }
};

template <class Futures>
asio::awaitable<std::size_t> await_first(Futures all) {
  using futures = first_future<Futures>;
  auto first = futures::ready(all);
  if (!first) {
    if (futures::count_valid(all) == 0) {
      throw std::system_error(std::make_error_code(std::errc::invalid_argument),
                              "when_any: no future is left to wait for");
    }
    const auto waiting = std::allocate_shared<futures>(pool_allocator<futures>(), all);
    const auto* const in_this_frame = &waiting;
    co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
        wait_for_first{}, asio::use_awaitable, in_this_frame);
    first = futures::ready(all);
    if (!first) throw std::system_error(asio::error::operation_aborted, "when_any");
  }
  co_return *first;
}

}  // namespace progress::detail

/// Waits until a future of the range is ready, and returns its index; of several that are, the
/// least. The futures stay where they are and with their owner, all in flight as before: await, or
/// `get()`, the one that is named for its result. That it has failed is no error here. Those that
/// were awaited already, which are not `valid()`, are passed over; so it may be called with the
/// same range until all were awaited.
///
/// The range must not change, nor one of its futures be awaited, before this returns. Asio's `||`
/// is what cancels the others.
/// *Errors*: `std::errc::invalid_argument` where no valid future is left.
/// *Cancellation*: of the wait, with `operation_aborted`; no operation hears of it, and no future
/// is lost. So `with_deadline(when_any(fs), 1s)` may be tried again. *Cost*: one frame, where it
/// waits one more allocation, and a step or two for each future.
template <class Range>
  requires std::ranges::forward_range<Range&> &&
           progress::detail::is_future<std::ranges::range_value_t<Range&>>::value
asio::awaitable<std::size_t> when_any(Range& futures) {
  return progress::detail::await_first<Range&>(futures);
}

/// The same for futures of any types. *Example*: `switch (co_await cohort::when_any(data, stop))`.
template <class... T>
  requires(sizeof...(T) > 0)
asio::awaitable<std::size_t> when_any(future<T>&... futures) {
  using references = std::tuple<future<T>&...>;
  return progress::detail::await_first<references>(references(futures...));
}

}  // namespace cohort
