// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What the others are compared with: Asio alone, awaiting a timer.

#include <cohort/core/asio.hpp>

asio::awaitable<void> wait() {
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::seconds(1));
  co_await timer.async_wait(asio::use_awaitable);
}

#ifdef WHOLE_PROGRAM
int main() {
  asio::io_context io;
  asio::co_spawn(io, wait(), asio::detached);
  io.run();
}
#endif
