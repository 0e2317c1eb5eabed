// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The handler by which an operation fills a future.

#include <cohort/core/asio.hpp>
#include <cohort/progress/detail/future_state.hpp>
#include <cohort/progress/value_of.hpp>

#include <exception>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::progress::detail {

/// The handler that fills the state. `Args` is the completion signature, decayed.
template <class... Args>
class future_handler {
  template <class First, class... Rest>
  static auto shape(std::tuple<First, Rest...>*) {
    constexpr bool is_error =
        std::is_same_v<First, std::error_code> || std::is_same_v<First, std::exception_ptr>;
    if constexpr (is_error) {
      return std::type_identity<typename value_of<Rest...>::type>{};
    } else {
      return std::type_identity<typename value_of<First, Rest...>::type>{};
    }
  }
  static auto shape(std::tuple<>*) { return std::type_identity<void>{}; }

 public:
  using value_type = typename decltype(shape(static_cast<std::tuple<Args...>*>(nullptr)))::type;
  using cancellation_slot_type = asio::cancellation_slot;

  explicit future_handler(state_ptr<value_type> state) noexcept : state_(std::move(state)) {}
  future_handler(future_handler&&) noexcept = default;
  future_handler& operator=(future_handler&&) = delete;
  ~future_handler() {
    if (state_) state_->abandon();
  }

  [[nodiscard]] cancellation_slot_type get_cancellation_slot() const noexcept {
    return state_->slot();
  }
  /// See associated_future: how the operation finds the state, also behind adapters.
  using filled_future_type = future_state_base*;
  [[nodiscard]] filled_future_type get_filled_future() const noexcept { return state_.get(); }

  void operator()() { finish(nullptr); }
  template <class First, class... Rest>
  void operator()(First&& first, Rest&&... rest) {
    using first_type = std::decay_t<First>;
    if constexpr (std::is_same_v<first_type, std::exception_ptr>) {
      finish(std::forward<First>(first), std::forward<Rest>(rest)...);
    } else if constexpr (std::is_same_v<first_type, std::error_code>) {
      finish(first ? std::make_exception_ptr(std::system_error(first)) : nullptr,
             std::forward<Rest>(rest)...);
    } else {
      finish(nullptr, std::forward<First>(first), std::forward<Rest>(rest)...);
    }
  }

 private:
  template <class... Values>
  void finish(std::exception_ptr error, Values&&... values) {
    const auto state = std::move(state_);
    state->set(std::move(error), std::forward<Values>(values)...);
  }

  state_ptr<value_type> state_;
};

}  // namespace cohort::progress::detail
