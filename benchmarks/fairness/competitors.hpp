// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What shares the loop with the engine: handlers, a timer and a socket, in plain Asio.

#include <cohort/core/asio.hpp>

#include <asio/ip/tcp.hpp>

namespace plain_asio {

/// Nanoseconds of one `co_await asio::post`.
asio::awaitable<double> post_loop(int rounds);
/// How late a timer of 1 ms fires, in nanoseconds.
asio::awaitable<double> timer_lateness(asio::steady_timer& timer);
/// Nanoseconds of `rounds` round trips of one byte, per round trip.
asio::awaitable<double> echo(asio::ip::tcp::socket& socket, int rounds);

/// Sends back what one connection brings, with blocking calls, until it is closed.
void serve_echo(asio::ip::tcp::acceptor& acceptor);

}  // namespace plain_asio
