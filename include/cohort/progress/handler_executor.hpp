// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Where a handler of an operation is called: on the lap's own stack, or on another executor.

#include <cohort/core/asio.hpp>
#include <cohort/progress/engine/event_loop.hpp>
#include <cohort/progress/operation.hpp>

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

}  // namespace cohort::progress
