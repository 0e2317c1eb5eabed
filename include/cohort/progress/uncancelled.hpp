// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Sees what several ranks do together through to its end.

#include <cohort/core/asio.hpp>

#include <utility>

namespace cohort::progress {

/// Awaits `work`, which does not hear of it when the coroutine that awaits is cancelled: to end
/// between two collectives would leave the other ranks in the second. That coroutine can be
/// cancelled as before when `work` is over. *Cost*: a coroutine.
template <class T>
asio::awaitable<T> uncancelled(asio::awaitable<T> work) {
  const auto executor = co_await asio::this_coro::executor;
  auto apart =
      asio::co_spawn(executor, std::move(work),
                     asio::bind_cancellation_slot(asio::cancellation_slot(), asio::use_awaitable));
  co_return co_await std::move(apart);
}

}  // namespace cohort::progress
