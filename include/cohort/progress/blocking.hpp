// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::blocking` for operations that are no verbs on a communicator.

#include <cohort/core/asio.hpp>
#include <cohort/core/token.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/future.hpp>

#include <concepts>
#include <optional>
#include <type_traits>
#include <utility>

namespace cohort {

namespace progress::detail {

/// Where an operation that is about to be started belongs to, if it says so.
template <class Initiation>
[[nodiscard]] engine* engine_of(const Initiation& initiation) {
  if constexpr (requires { initiation.get_engine(); }) {
    return initiation.get_engine();
  } else if constexpr (requires { asio::any_io_executor(initiation.get_executor()); }) {
    asio::io_context* const loop = loop_of(initiation.get_executor());
    return loop == nullptr ? nullptr : &asio::use_service<engine>(*loop);
  } else {
    return nullptr;
  }
}

}  // namespace progress::detail

}  // namespace cohort

/// Of operations that are no verbs on a communicator: a future is waited for.
template <class R, class... Args>
class asio::async_result<cohort::blocking_t, R(Args...)> {
  using eager = asio::async_result<cohort::as_future_t, R(Args...)>;

 public:
  using return_type = typename eager::return_type::value_type;

  template <class Initiation, class Token, class... InitArgs>
  static return_type initiate(Initiation&& initiation, Token&&, InitArgs&&... args) {
    cohort::progress::engine* const owner = cohort::progress::detail::engine_of(initiation);
    using waiting = cohort::progress::engine::in_place;
    std::optional<waiting> place;
    if (owner != nullptr) place.emplace(*owner, waiting::on_trouble::stay).begin();
    auto pending = eager::initiate(std::forward<Initiation>(initiation), cohort::as_future,
                                   std::forward<InitArgs>(args)...);
    if (owner == nullptr) {
      cohort::progress::engine* const found = pending.get_engine();
      if (found == nullptr) return pending.get();
      place.emplace(*found, waiting::on_trouble::stay);
    }
    return pending.get_in(*place);
  }
};
