// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The future that a handler fills, which its operation must know.

#include <cohort/core/asio.hpp>

#include <asio/associator.hpp>

#include <type_traits>

namespace cohort::progress {

/// What is associated with a handler that fills no future.
struct no_future {};

template <class Handler, class Candidate = no_future>
struct associated_future;

namespace detail {

template <class Handler, class Candidate, class = void, class = void>
struct associated_future_impl {
  using type = Candidate;
  static type get(const Handler&, const Candidate& none = Candidate()) noexcept { return none; }
};
template <class Handler, class Candidate, class Adapter>
struct associated_future_impl<Handler, Candidate, std::void_t<typename Handler::filled_future_type>,
                              Adapter> {
  using type = typename Handler::filled_future_type;
  static type get(const Handler& handler, const Candidate& = Candidate()) noexcept {
    return handler.get_filled_future();
  }
};
template <class Handler, class Candidate>
struct associated_future_impl<
    Handler, Candidate, void,
    std::void_t<typename asio::associator<associated_future, Handler, Candidate>::type>>
    : asio::associator<associated_future, Handler, Candidate> {};

}  // namespace detail

/// An associator, like those of executors and allocators, so `as_tuple(as_future)`,
/// `bind_executor(ex, as_future)` and Asio's other adapters pass on what they wrap.
template <class Handler, class Candidate>
struct associated_future : detail::associated_future_impl<Handler, Candidate> {};

/// Whether a handler fills a future, itself or behind adapters.
template <class Handler>
inline constexpr bool fills_future =
    !std::is_same_v<typename associated_future<Handler>::type, no_future>;

}  // namespace cohort::progress
