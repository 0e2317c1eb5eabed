// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Messages over TCP, and how a connection to another process of the launch is opened: with
/// mutual proof of the token.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/link/handshake.hpp>
#include <cohort/cluster/link/link.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>

#include <asio/buffer.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::cluster {

using tcp_socket = asio::basic_stream_socket<asio::ip::tcp, asio::io_context::executor_type>;

/// A process that is started here must not hold the connection: the other side waits for its end.
inline void close_on_exec(int descriptor) noexcept { ::fcntl(descriptor, F_SETFD, FD_CLOEXEC); }

/// Nothing comes from a machine that has vanished, or to which there is no way any more, not even
/// that it is gone. The kernel asks an idle connection after 10 s, and ends it 20 s later.
inline void ask_when_idle(tcp_socket& socket) noexcept {
  const int descriptor = socket.native_handle();
  const auto set = [&](int level, int option, int value) {
    static_cast<void>(::setsockopt(descriptor, level, option, &value, sizeof value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

/// The kernel ends the connection when what has been sent stays unconfirmed for that long. It does
/// so too if the other side does not read, so this is not for one whose reader may compute for
/// long.
inline void bound_silence(tcp_socket& socket, std::chrono::nanoseconds bound) noexcept {
  const auto most = std::chrono::milliseconds(std::numeric_limits<int>::max());
  const auto rounded = std::chrono::ceil<std::chrono::milliseconds>(bound);
  const auto value = static_cast<unsigned>(std::min(rounded, most).count());
  static_cast<void>(
      ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &value, sizeof value));
}

/// Over a socket that has proved itself.
template <class Any>
class basic_tcp_link final : public link {
 public:
  basic_tcp_link(tcp_socket socket, std::size_t max_message)
      : link(max_message), socket_(std::move(socket)), buffer_(buffer_size) {
    std::error_code ignored;
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    ask_when_idle(socket_);
  }
  [[nodiscard]] int native_handle() { return socket_.native_handle(); }

 private:
  void read() override {
    const std::span<std::byte> first = this->room();
    auto come = [self = shared_from_this(), this, room = first.size()](std::error_code failed,
                                                                       std::size_t size) {
      const std::size_t in_room = std::min(room, size);
      if (arrived(failed, std::span(buffer_).first(size - in_room), in_room)) read();
    };
    if (first.empty()) return socket_.async_read_some(asio::buffer(buffer_), std::move(come));
    // Behind what has a place of its own comes the head of the next frame.
    const std::array<asio::mutable_buffer, 2> into{asio::buffer(first.data(), first.size()),
                                                   asio::buffer(buffer_.data(), frame_head_size)};
    socket_.async_read_some(into, std::move(come));
  }
  void write(const std::vector<asio::const_buffer>& what) override {
    const auto as_much_as_goes = [](std::error_code failed, std::size_t) {
      return failed ? std::size_t{0} : frame_limit;  // and not 64 KiB, as by itself
    };
    asio::async_write(socket_, what, as_much_as_goes,
                      [self = shared_from_this(), this](std::error_code failed, std::size_t) {
                        written(failed);
                      });
  }
  void close_stream() noexcept override {
    std::error_code ignored;
    socket_.close(ignored);
  }

  tcp_socket socket_;
  std::vector<std::byte> buffer_;
};
using tcp_link = basic_tcp_link<void>;

/// How long a handshake may take, on either side.
inline constexpr std::chrono::seconds handshake_timeout{5};

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

/// "10.0.0.1:4711", "[::1]:4711".
template <class Any = void>
[[nodiscard]] std::string to_text(const asio::ip::tcp::endpoint& where) {
  // A connection by IPv4 to a socket that takes both has an address that is mapped.
  const bool mapped = where.address().is_v6() && where.address().to_v6().is_v4_mapped();
  const std::string address =
      mapped ? asio::ip::make_address_v4(asio::ip::v4_mapped, where.address().to_v6()).to_string()
             : where.address().to_string();
  const std::string port = std::to_string(where.port());
  return where.address().is_v6() && !mapped ? "[" + address + "]:" + port : address + ":" + port;
}

template <class Any = void>
[[nodiscard]] std::optional<asio::ip::tcp::endpoint> parse_endpoint(std::string_view text) {
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

/// Those of a list with commas that are addresses.
template <class Any = void>
[[nodiscard]] std::vector<asio::ip::tcp::endpoint> parse_endpoints(std::string_view list) {
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
    std::array<std::byte, 1> last{};
    co_await asio::async_read(*socket, asio::buffer(last), awaiting<Any>);
    if (last[0] == static_cast<std::byte>(handshake_result::accepted)) co_return std::string();
    co_return last[0] == static_cast<std::byte>(handshake_result::wrong_token)
        ? "says that our token is wrong"
        : "expects no such connection";
  } catch (const std::system_error& failed) {
    if (!socket->is_open()) co_return "no answer in time";
    co_return failed.code().message();
  }
}

}  // namespace detail

/// Connects to the first of the addresses where somebody answers who knows the token. Throws
/// error(errc::refused) that says for each address why not.
template <class Any = void>
asio::awaitable<tcp_socket> connect(asio::io_context& io,
                                    std::vector<asio::ip::tcp::endpoint> addresses,
                                    launch_token token, greeting hello) {
  std::string text;
  // Who accepts may close a connection to make room when strangers crowd it: try again.
  for (int round = 0; round < 4; ++round) {
    text.clear();
    for (const asio::ip::tcp::endpoint& address : addresses) {
      const auto socket = std::make_shared<tcp_socket>(io);
      const std::string problem = co_await detail::attempt(socket, address, token, hello);
      if (problem.empty()) co_return std::move(*socket);
      text += (text.empty() ? "" : "; ") + to_text(address) + ": " + problem;
    }
    asio::steady_timer pause(io, std::chrono::milliseconds(20 << (2 * round)));
    co_await pause.async_wait(awaiting<Any>);
  }
  throw error(errc::refused, "no connection to the manager: " + text);
}

}  // namespace cohort::cluster
