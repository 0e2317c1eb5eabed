// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `progress/doorbell.hpp`.

#include <cohort/core/crypto.hpp>
#include <cohort/progress/doorbell.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace cohort::progress {

COHORT_INLINE doorbell::doorbell(engine& owner) : engine_(owner) {
  address_.token = random_number();
  const auto fail = [this](const char* call) {
    const std::error_code why(errno, std::generic_category());
    if (socket_ >= 0) ::close(socket_);
    throw std::system_error(why, call);
  };
  socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) fail("doorbell: socket");
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof(any);
  if (::bind(socket_, reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0 ||
      ::getsockname(socket_, reinterpret_cast<sockaddr*>(&any), &length) != 0) {
    fail("doorbell: bind");
  }
  address_.port = any.sin_port;
}

COHORT_INLINE doorbell::~doorbell() {
  engine_.loop().forget_socket();
  ::close(socket_);
}

COHORT_INLINE void doorbell::arm() {
  if (armed_.exchange(true)) return;
  const auto rung = [](void* self) { static_cast<doorbell*>(self)->on_ring(); };
  try {
    engine_.loop().wait_readable(socket_, rung, this);
  } catch (...) {
    armed_.store(false);
    throw;
  }
}

COHORT_INLINE void doorbell::on_ring() {
  armed_.store(false);  // before it is read: a lap that parks from here on waits for the next ring
  if (read_rings()) {
    engine_.started();
    engine_.attend();  // a long message may need several looks
  } else {
    arm();  // a stranger's datagram
  }
}

COHORT_INLINE bool doorbell::read_rings() noexcept {
  bool mine = false;
  std::uint64_t token = 0;
  for (;;) {
    const auto length = ::recv(socket_, &token, sizeof(token), MSG_TRUNC);
    if (length < 0) return mine;
    mine = mine || (length == sizeof(token) && token == address_.token);
  }
}

COHORT_INLINE void doorbell::ring(const bell_address& whom, bool here) const noexcept {
  if (whom.port == 0) return;
  engine_.count_ring();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = whom.port;
  to.sin_addr.s_addr = here ? htonl(INADDR_LOOPBACK) : whom.ipv4;
  static_cast<void>(::sendto(socket_, &whom.token, sizeof(whom.token), MSG_DONTWAIT,
                             reinterpret_cast<const sockaddr*>(&to), sizeof(to)));
}

}  // namespace cohort::progress
