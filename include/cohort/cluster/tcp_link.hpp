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

#include <cstddef>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::cluster {

using tcp_socket = asio::basic_stream_socket<asio::ip::tcp, asio::io_context::executor_type>;

/// A process that is started here must not hold the connection: the other side waits for its end.
inline void close_on_exec(int descriptor) noexcept { ::fcntl(descriptor, F_SETFD, FD_CLOEXEC); }

/// Over a socket that has proved itself.
class tcp_link final : public link {
 public:
  tcp_link(tcp_socket socket, std::size_t max_message)
      : link(max_message), socket_(std::move(socket)), buffer_(buffer_size) {
    std::error_code ignored;
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    socket_.set_option(asio::socket_base::keep_alive(true), ignored);
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

}  // namespace cohort::cluster
