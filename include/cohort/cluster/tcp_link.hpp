// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Messages over TCP.

#include <cohort/cluster/link.hpp>
#include <cohort/core/asio.hpp>

#include <asio/buffer.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/write.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
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

/// The kernel ends the connection when what has been sent stays unconfirmed for that long. Also if
/// the other side does not read, so not for one whose reader may compute for long.
inline void bound_silence(tcp_socket& socket, std::chrono::nanoseconds bound) noexcept {
  const auto most = std::chrono::milliseconds(std::numeric_limits<int>::max());
  const auto rounded = std::chrono::ceil<std::chrono::milliseconds>(bound);
  const auto value = static_cast<unsigned>(std::min(rounded, most).count());
  static_cast<void>(
      ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &value, sizeof value));
}

/// Over a socket that has proved itself.
/// (A template, so that only who uses it compiles its bodies.)
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
    socket_.async_read_some(asio::buffer(buffer_), [self = shared_from_this(), this](
                                                       std::error_code failed, std::size_t size) {
      if (arrived(failed, std::span(buffer_).first(size))) read();
    });
  }
  void write(const std::vector<asio::const_buffer>& what) override {
    asio::async_write(socket_, what,
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

}  // namespace cohort::cluster
