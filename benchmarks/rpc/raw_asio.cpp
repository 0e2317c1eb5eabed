// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <asio/read.hpp>
#include <asio/write.hpp>

namespace raw_asio {
namespace {

using asio::ip::tcp;

asio::awaitable<void> echo(tcp::acceptor acceptor, std::size_t size) {
  auto socket = co_await acceptor.async_accept(asio::use_awaitable);
  socket.set_option(tcp::no_delay(true));
  std::vector<std::byte> message(size);
  for (;;) {
    co_await asio::async_read(socket, asio::buffer(message), asio::use_awaitable);
    co_await asio::async_write(socket, asio::buffer(message), asio::use_awaitable);
  }
}

}  // namespace

std::uint16_t serve(asio::io_context& io, std::size_t size) {
  tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  const std::uint16_t port = acceptor.local_endpoint().port();
  asio::co_spawn(io, echo(std::move(acceptor), size), asio::detached);  // ends when the client goes
  return port;
}

asio::awaitable<tcp::socket> connect(std::uint16_t port) {
  tcp::socket socket(co_await asio::this_coro::executor);
  const tcp::endpoint server(asio::ip::address_v4::loopback(), port);
  co_await socket.async_connect(server, asio::use_awaitable);
  socket.set_option(tcp::no_delay(true));
  co_return socket;
}

asio::awaitable<std::vector<double>> round_trips(tcp::socket& socket,
                                                 std::vector<std::byte>& message, int rounds) {
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(rounds));
  for (int i = 0; i < rounds; ++i) {
    const auto start = bench::clock::now();
    co_await asio::async_write(socket, asio::buffer(message), asio::use_awaitable);
    co_await asio::async_read(socket, asio::buffer(message), asio::use_awaitable);
    times.push_back(bench::nanoseconds_since(start));
  }
  co_return times;
}

}  // namespace raw_asio
