// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What an operation must know of its handler: where it is called, on the lap's own stack or on
/// another executor, and which future it fills.

#include <cohort/core/asio.hpp>
#include <cohort/progress/engine/event_loop.hpp>
#include <cohort/progress/operation.hpp>

#include <asio/associator.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace cohort::progress {

/// The executor of a handler, and the work that keeps a foreign one alive.
///
/// On the engine's own executor a lap calls the handler itself: it costs less, and what it throws
/// leaves the lap at once, where `asio::dispatch` would hold it back until the lap has ended.
template <class Handler>
class handler_executor {
  using own_executor = asio::io_context::executor_type;
  using executor = asio::associated_executor_t<Handler, own_executor>;
  using tracked = std::decay_t<decltype(asio::prefer(std::declval<const executor&>(),
                                                     asio::execution::outstanding_work.tracked))>;

 public:
  void set(const Handler& handler, const own_executor& own) {
    const executor ex = asio::get_associated_executor(handler, own);
    if (!same(ex, own)) {
      foreign_.emplace(asio::prefer(ex, asio::execution::outstanding_work.tracked));
    }
  }

  /// False where the handler belongs on the engine's own context: then laps and timers keep that
  /// alive, and the lap calls the handler itself.
  [[nodiscard]] bool is_foreign() const noexcept { return foreign_.has_value(); }
  /// Delivers `op`, which owns this, on the foreign executor; destroys it if that drops it.
  void dispatch(detail::event_loop& loop, operation& op) {
    auto where = std::move(*foreign_);
    if constexpr (std::is_same_v<tracked, asio::any_io_executor>) {
      loop.dispatch(std::move(where), op);
    } else {
      asio::dispatch(where, detail::hop(op));
    }
  }

 private:
  static bool same(const executor& ex, const own_executor& own) noexcept {
    if constexpr (std::is_same_v<executor, own_executor>) {
      return ex == own;
    } else if constexpr (requires { ex.template target<own_executor>(); }) {
      const auto* inside = executor_inside<own_executor>(ex);
      return inside != nullptr && *inside == own;
    } else {
      return false;
    }
  }
  std::optional<tracked> foreign_;
};

// ---- the future ---------------------------------------------------------------------------------

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
