// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <asio/buffer.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>

namespace plain_asio {

asio::awaitable<double> post_loop(int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) co_await asio::post(asio::use_awaitable);
  co_return bench::nanoseconds_since(start) / rounds;
}

asio::awaitable<double> timer_lateness(asio::steady_timer& timer) {
  timer.expires_after(std::chrono::milliseconds(1));
  const auto due = timer.expiry();
  co_await timer.async_wait(asio::use_awaitable);
  co_return bench::nanoseconds_since(due);
}

asio::awaitable<double> echo(asio::ip::tcp::socket& socket, int rounds) {
  char byte = 'x';
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    co_await asio::async_write(socket, asio::buffer(&byte, 1), asio::use_awaitable);
    co_await asio::async_read(socket, asio::buffer(&byte, 1), asio::use_awaitable);
  }
  co_return bench::nanoseconds_since(start) / rounds;
}

void serve_echo(asio::ip::tcp::acceptor& acceptor) {
  asio::ip::tcp::socket socket = acceptor.accept();
  socket.set_option(asio::ip::tcp::no_delay(true));
  char byte = 0;
  std::error_code ended;
  while (socket.read_some(asio::buffer(&byte, 1), ended) == 1) {
    asio::write(socket, asio::buffer(&byte, 1), ended);
  }
}

}  // namespace plain_asio
