// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the programs of the walks share: who comes late, and when functions are recorded.

#include <cohort/comm/operation.hpp>
#include <cohort/core/asio.hpp>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>

#include <chrono>

#include "trace.hpp"

namespace walk {

/// An operation is recorded so often, after it has run once for its memory and once to see what
/// runs while it waits.
inline constexpr int repetitions = 9;

inline asio::awaitable<void> pause(int milliseconds) {
  asio::steady_timer timer(co_await asio::this_coro::executor,
                           std::chrono::milliseconds(milliseconds));
  co_await timer.async_wait(asio::use_awaitable);
}

/// A message past the library: the other rank may go on.
inline void tell(const cohort::communicator& world) {
  MPI_Send(nullptr, 0, MPI_INT, 1 - world.rank(), 1, world.native());
}

inline asio::awaitable<void> until_told(cohort::communicator world) {
  for (int there = 0; there == 0;) {
    co_await pause(1);
    MPI_Iprobe(1 - world.rank(), 1, world.native(), &there, MPI_STATUS_IGNORE);
  }
  MPI_Recv(nullptr, 0, MPI_INT, 1 - world.rank(), 1, world.native(), MPI_STATUS_IGNORE);
}

/// Records what runs while nothing happens.
inline asio::awaitable<void> idle() {
  co_await pause(2);
  begin('i');
  co_await pause(120);  // the slow beat of the engine too
  end();
}

/// Returns in a handler of the loop with nothing of the library in front of the caller.
inline asio::awaitable<void> turn() { return asio::post(asio::use_awaitable); }

/// Before the operation number `i`: rank 0 begins with it, and rank 1 only when rank 0 waits.
inline asio::awaitable<void> rank_0_first(cohort::communicator world, int i) {
  if (world.rank() == 1) co_return co_await until_told(world);
  const auto meanwhile = [](cohort::communicator with, bool first) -> asio::awaitable<void> {
    if (first) co_await idle();
    co_await pause(2);
    tell(with);
  };
  asio::co_spawn(co_await asio::this_coro::executor, meanwhile(world, i == 0), asio::detached);
  co_await turn();
  if (i > 0) begin('w');
}

}  // namespace walk
