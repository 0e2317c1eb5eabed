// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Opens a connection to another process of the launch, with mutual proof of the token.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/handshake.hpp>
#include <cohort/cluster/tcp_link.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>

#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// How long a handshake may take, on either side.
inline constexpr std::chrono::seconds handshake_timeout{5};

/// "10.0.0.1:4711", "[::1]:4711".
template <class Any = void>
[[nodiscard]] std::string to_text(const asio::ip::tcp::endpoint& where);
template <class Any = void>
[[nodiscard]] std::optional<asio::ip::tcp::endpoint> parse_endpoint(std::string_view text);
/// Those of a list with commas that are addresses.
template <class Any = void>
[[nodiscard]] std::vector<asio::ip::tcp::endpoint> parse_endpoints(std::string_view list);

/// Closes the socket unless it is destroyed within the time. The socket must be shared because the
/// timer's handler may already be on its way when this is destroyed.
class socket_limit {
 public:
  template <class Any = void>
  socket_limit(const std::shared_ptr<tcp_socket>& socket, std::chrono::steady_clock::duration time)
      : timer_(socket->get_executor(), time) {
    timer_.async_wait([socket](std::error_code stopped) {
      if (stopped) return;
      std::error_code ignored;
      socket->close(ignored);
    });
  }

 private:
  asio::steady_timer timer_;
};

/// Connects to the first of the addresses where somebody answers who knows the token. Throws
/// error(errc::refused) that says for each address why not.
template <class Any = void>
asio::awaitable<tcp_socket> connect(asio::io_context& io,
                                    std::vector<asio::ip::tcp::endpoint> addresses,
                                    launch_token token, greeting hello);

// ---- implementation --------------------------------------------------------------------------

template <class Any>
std::string to_text(const asio::ip::tcp::endpoint& where) {
  // A connection by IPv4 to a socket that takes both has an address that is mapped.
  const bool mapped = where.address().is_v6() && where.address().to_v6().is_v4_mapped();
  const std::string address =
      mapped ? asio::ip::make_address_v4(asio::ip::v4_mapped, where.address().to_v6()).to_string()
             : where.address().to_string();
  const std::string port = std::to_string(where.port());
  return where.address().is_v6() && !mapped ? "[" + address + "]:" + port : address + ":" + port;
}

template <class Any>
std::optional<asio::ip::tcp::endpoint> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  unsigned short port = 0;
  const auto [stop, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (failed != std::errc{} || stop != digits.data() + digits.size()) return std::nullopt;
  std::error_code wrong;
  const auto address = asio::ip::make_address(std::string(host), wrong);
  if (wrong) return std::nullopt;
  return asio::ip::tcp::endpoint(address, port);
}

template <class Any>
std::vector<asio::ip::tcp::endpoint> parse_endpoints(std::string_view list) {
  std::vector<asio::ip::tcp::endpoint> all;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (const auto where = parse_endpoint(list.substr(0, comma))) all.push_back(*where);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return all;
}

namespace detail {

/// One attempt. Empty if all is well, else what is not.
template <class Any = void>
asio::awaitable<std::string> attempt(std::shared_ptr<tcp_socket> socket,
                                     asio::ip::tcp::endpoint address, launch_token token,
                                     greeting hello) {
  const socket_limit limit(socket, handshake_timeout);
  connecting_side side(token, hello);
  try {
    socket->open(address.protocol());
    close_on_exec(socket->native_handle());
    co_await socket->async_connect(address, awaiting<Any>);
    socket->set_option(asio::ip::tcp::no_delay(true));
    co_await asio::async_write(*socket, asio::buffer(side.greeting()), awaiting<Any>);
    reply_bytes reply{};
    co_await asio::async_read(*socket, asio::buffer(reply), awaiting<Any>);
    if (!side.trusts(reply)) co_return "does not know this launch's token";
    const proof_bytes proof = side.proof(reply);
    co_await asio::async_write(*socket, asio::buffer(proof), awaiting<Any>);
    std::array<std::byte, 1> said{};
    co_await asio::async_read(*socket, asio::buffer(said), awaiting<Any>);
    if (said[0] == static_cast<std::byte>(verdict::accepted)) co_return std::string();
    co_return said[0] == static_cast<std::byte>(verdict::wrong_token)
        ? "says that our token is wrong"
        : "expects no such connection";
  } catch (const std::system_error& failed) {
    if (!socket->is_open()) co_return "no answer in time";
    co_return failed.code().message();
  }
}

}  // namespace detail

template <class Any>
asio::awaitable<tcp_socket> connect(asio::io_context& io,
                                    std::vector<asio::ip::tcp::endpoint> addresses,
                                    launch_token token, greeting hello) {
  std::string text;
  // Who accepts may close a connection to make room when strangers crowd it: try again.
  for (int round = 0; round < 4; ++round) {
    text.clear();
    for (const asio::ip::tcp::endpoint& address : addresses) {
      const auto socket = std::make_shared<tcp_socket>(io);
      auto trial = detail::attempt(socket, address, token, hello);
      const std::string problem = co_await std::move(trial);
      if (problem.empty()) co_return std::move(*socket);
      text += (text.empty() ? "" : "; ") + to_text(address) + ": " + problem;
    }
    asio::steady_timer pause(io, std::chrono::milliseconds(20 << (2 * round)));
    co_await pause.async_wait(awaiting<Any>);
  }
  throw error(errc::refused, "no connection to the manager: " + text);
}

}  // namespace cohort::cluster
