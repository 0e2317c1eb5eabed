// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Lets in who knows a launch's token, while the workers of that launch come.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/link/handshake.hpp>
#include <cohort/cluster/link/tcp_link.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/log.hpp>

#include <asio/ip/v6_only.hpp>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::cluster {

namespace detail {

/// The addresses by which other machines may reach this one: IPv4 first, then IPv6 where asked for,
/// without those that are only valid on one link.
[[nodiscard]] inline std::vector<asio::ip::address> routable_addresses(bool v6) {
  std::vector<asio::ip::address> all;
  std::vector<asio::ip::address> later;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return all;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0 ||
        (each->ifa_flags & IFF_LOOPBACK) != 0) {
      continue;
    }
    if (each->ifa_addr->sa_family == AF_INET) {
      const auto* const in = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
      all.push_back(asio::ip::address_v4(ntohl(in->sin_addr.s_addr)));
    } else if (v6 && each->ifa_addr->sa_family == AF_INET6) {
      const auto* const in = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
      asio::ip::address_v6::bytes_type bytes;
      std::memcpy(bytes.data(), &in->sin6_addr, bytes.size());
      const asio::ip::address_v6 address(bytes);
      if (!address.is_link_local()) later.push_back(address);
    }
  }
  ::freeifaddrs(list);
  all.insert(all.end(), later.begin(), later.end());
  return all;
}

}  // namespace detail

/// Who has not proved that it knows the token is a visitor: it is given five seconds and 96 bytes,
/// and if there are too many of them the oldest has to go. A genuine worker proves itself within a
/// round trip, so it is hardly ever the oldest; if it is, it tries again. Used by the thread that
/// runs the context. Must be owned by a shared_ptr.
template <class Any>
class basic_reception : public std::enable_shared_from_this<basic_reception<Any>> {
 public:
  using reception = basic_reception;
  /// Whether such a connection is wanted now, asked of those that know the token.
  using expected_function = std::function<bool(const greeting&)>;
  /// Called at once if it is. The visitor has been told that it is accepted.
  using arrived_function = std::function<void(const greeting&, tcp_socket&&)>;

  /// `most` visitors at a time.
  basic_reception(asio::io_context& io, const launch_token& token, std::size_t most,
                  expected_function expected, arrived_function arrived)
      : io_(io),
        token_(token),
        most_(most),
        expected_(std::move(expected)),
        arrived_(std::move(arrived)),
        acceptor_(io) {}
  basic_reception(const reception&) = delete;
  basic_reception& operator=(const reception&) = delete;

  /// Listens on that address; if it is empty, on all, of IPv6 too where there is any. Throws
  /// errc::invalid_argument for what is no address, errc::launch_failed if it cannot be listened
  /// on.
  void listen(const std::string& interface) {
    if (interface.empty() && !bind_to({asio::ip::address_v6::any(), 0})) return;
    asio::ip::tcp::endpoint endpoint(asio::ip::address_v4::any(), 0);
    if (!interface.empty()) {
      std::error_code wrong;
      endpoint.address(asio::ip::make_address(interface, wrong));
      if (wrong) {
        throw error(errc::invalid_argument, "launch_options: interface: no address: " + interface);
      }
    }
    if (const std::error_code failed = bind_to(endpoint)) {
      throw error(errc::launch_failed,
                  "launch: cannot listen on " + to_text(endpoint) + ": " + failed.message());
    }
  }
  /// Where workers try to connect, in this order.
  [[nodiscard]] std::string addresses() const {
    const auto local = acceptor_.local_endpoint();
    std::vector<asio::ip::address> all;
    if (local.address().is_unspecified()) {
      const bool both = local.address().is_v6();
      all = detail::routable_addresses(both);
      all.push_back(asio::ip::address_v4::loopback());
      if (both) all.push_back(asio::ip::address_v6::loopback());
    } else {
      all.push_back(local.address());
    }
    std::string text;
    for (const auto& each : all) {
      text += (text.empty() ? "" : ",") + to_text(asio::ip::tcp::endpoint(each, local.port()));
    }
    return text;
  }
  /// Lets visitors in.
  void open() {
    run_beside(io_, accept_all(this->shared_from_this()), [](std::exception_ptr) {});
  }
  /// Nobody else comes in; who has not proved itself is sent away.
  void close() {
    std::error_code ignored;
    acceptor_.close(ignored);
    for (const socket_ptr& each : visitors_) each->close(ignored);
    visitors_.clear();
  }

  /// How many were refused.
  [[nodiscard]] std::size_t refused() const noexcept { return refused_; }

 private:
  using socket_ptr = std::shared_ptr<tcp_socket>;

  /// Any address of IPv6 takes those of IPv4 too; it fails if this machine has no IPv6.
  [[nodiscard]] std::error_code bind_to(const asio::ip::tcp::endpoint& where) {
    std::error_code failed;
    acceptor_.close(failed);
    acceptor_.open(where.protocol(), failed);
    if (failed) return failed;
    close_on_exec(acceptor_.native_handle());
    if (where.address().is_v6() && where.address().is_unspecified()) {
      acceptor_.set_option(asio::ip::v6_only(false), failed);
    }
    if (!failed) acceptor_.bind(where, failed);
    if (!failed) acceptor_.listen(asio::socket_base::max_listen_connections, failed);
    return failed;
  }
  static asio::awaitable<void> accept_all(std::shared_ptr<reception> self) {
    while (self->acceptor_.is_open()) {
      const auto visitor = std::make_shared<tcp_socket>(self->io_);
      std::error_code failed;
      co_await self->acceptor_.async_accept(*visitor, asio::redirect_error(awaiting<Any>, failed));
      if (!self->acceptor_.is_open()) break;
      if (failed) {  // no descriptors, no memory: it would fail again at once
        asio::steady_timer pause(self->io_, std::chrono::milliseconds(100));
        co_await pause.async_wait(awaiting<Any>);
        continue;
      }
      close_on_exec(visitor->native_handle());
      if (self->visitors_.size() >= self->most_) {
        std::error_code ignored;
        self->visitors_.front()->close(ignored);
        self->visitors_.pop_front();
      }
      self->visitors_.push_back(visitor);
      run_beside(self->io_, receive(self, visitor), [](std::exception_ptr) {});
    }
  }
  static asio::awaitable<void> receive(std::shared_ptr<reception> self, socket_ptr visitor) {
    std::error_code unknown;
    const auto remote = visitor->remote_endpoint(unknown);
    const std::string whom = unknown ? std::string("?") : to_text(remote);
    const std::string problem = co_await self->shake_hands(visitor);
    std::erase(self->visitors_, visitor);
    if (!problem.empty()) self->refuse(whom, problem);
  }
  /// Returns why the visitor is refused; empty if it is taken.
  asio::awaitable<std::string> shake_hands(socket_ptr visitor) {
    const socket_limit limit(visitor, handshake_timeout);
    accepting_side side;
    try {
      greeting_bytes hello{};
      co_await asio::async_read(*visitor, asio::buffer(hello), awaiting<Any>);
      if (!side.understands(hello)) co_return "it does not speak this protocol";
      const reply_bytes reply = side.reply(token_);
      co_await asio::async_write(*visitor, asio::buffer(reply), awaiting<Any>);
      proof_bytes proof{};
      co_await asio::async_read(*visitor, asio::buffer(proof), awaiting<Any>);
      if (!visitor->is_open()) co_return "it did not prove itself in time";
      handshake_result result = handshake_result::accepted;
      if (!side.trusts(token_, proof)) {
        result = handshake_result::wrong_token;
      } else if (!acceptor_.is_open() || !expected_(side.hello())) {
        result = handshake_result::not_expected;
      }
      const std::array<std::byte, 1> answer{static_cast<std::byte>(result)};
      if (result != handshake_result::accepted) {
        co_await asio::async_write(*visitor, asio::buffer(answer), awaiting<Any>);
        if (result == handshake_result::wrong_token)
          co_return "it does not know the launch's token";
        co_return "it is not expected";
      }
      // Nothing may come between the decision and what follows from it, such as another one of the
      // same session, or its being closed to make room. One byte always fits; if the connection is
      // broken its reader will say so.
      std::error_code broken;
      asio::write(*visitor, asio::buffer(answer), broken);
      arrived_(side.hello(), std::move(*visitor));
      co_return std::string();
    } catch (const std::system_error&) {
      if (!visitor->is_open()) co_return "it did not prove itself in time";
      co_return "it left before it proved itself";
    }
  }
  void refuse(const std::string& whom, const std::string& why) {
    constexpr std::size_t told = 5;
    if (++refused_ > told) return;
    log::write(log::level::warning,
               "launch: refused a connection from " + whom + ": " + why +
                   (refused_ == told ? " (more of them are counted, not told)" : ""));
  }

  asio::io_context& io_;
  launch_token token_;
  std::size_t most_;
  expected_function expected_;
  arrived_function arrived_;
  asio::basic_socket_acceptor<asio::ip::tcp, asio::io_context::executor_type> acceptor_;
  std::deque<socket_ptr> visitors_;  // oldest first
  std::size_t refused_ = 0;
};
using reception = basic_reception<void>;

}  // namespace cohort::cluster
