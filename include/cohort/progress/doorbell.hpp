// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Wakes an engine that sleeps in the reactor: a datagram that carries a token and nothing else.

#include <cohort/core/asio.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/random.hpp>
#include <cohort/progress/engine.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <system_error>

namespace cohort::progress {

/// Where to ring, as it travels between ranks.
struct bell_address {
  std::uint64_t token = 0;  ///< a ring without it is ignored
  std::uint32_t ipv4 = 0;   ///< network byte order
  std::uint16_t port = 0;   ///< network byte order; 0: there is no bell
  std::uint16_t reserved = 0;
};

/// An engine's bell. Its wait is not counted as work, so it keeps no context alive.
///
/// *Threads.* `arm` is called inside handlers of the loop only (`engine` sees to that), which may
/// run on several threads: a ring is a handler beside the lap. `address` and `ring` from anywhere.
/// Who parks says so through a flag, on one host, or is rung with every message, once. A datagram
/// between hosts may be lost, or never arrive where UDP is filtered or the first address is not the
/// one that leads there: who is rung from other hosts looks once a second, too.
class doorbell final : public wake_up {
 public:
  /// Throws `std::system_error` if no socket can be had.
  explicit doorbell(engine& owner);
  inline ~doorbell() override;
  doorbell(const doorbell&) = delete;
  doorbell& operator=(const doorbell&) = delete;

  inline void arm() override;
  [[nodiscard]] const bell_address& address() const noexcept { return address_; }
  [[nodiscard]] bool may_miss() const noexcept override { return rung_from_afar_.load(); }
  /// From now on ranks of other hosts ring.
  void rung_from_afar() noexcept { rung_from_afar_.store(true); }

  /// Rings somebody's bell. Best effort, does not block. `here`: the bell is on this host.
  void ring(const bell_address& whom, bool here) const noexcept;

 private:
  void on_ring();
  [[nodiscard]] bool read_rings() noexcept;

  engine& engine_;
  int socket_ = -1;
  bell_address address_;
  std::atomic<bool> rung_from_afar_{false};
  std::atomic<bool> armed_{false};  // whoever sets it waits, so there is one wait at a time
};

// ---- implementation ------------------------------------------------------------------------

inline doorbell::doorbell(engine& owner) : engine_(owner) {
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

inline doorbell::~doorbell() {
  engine_.loop().forget_socket();
  ::close(socket_);
}

inline void doorbell::arm() {
  if (armed_.exchange(true)) return;
  const auto rung = [](void* self) { static_cast<doorbell*>(self)->on_ring(); };
  engine_.loop().wait_readable(socket_, rung, this);
}

inline void doorbell::on_ring() {
  armed_.store(false);  // before it is read: a lap that parks from here on waits for the next ring
  if (read_rings()) {
    engine_.wake();
    engine_.attend();  // a long message may need several looks
  } else {
    arm();  // a stranger's datagram
  }
}

inline bool doorbell::read_rings() noexcept {
  bool mine = false;
  std::uint64_t token = 0;
  for (;;) {
    const auto length = ::recv(socket_, &token, sizeof(token), MSG_TRUNC);
    if (length < 0) return mine;
    mine = mine || (length == sizeof(token) && token == address_.token);
  }
}

inline void doorbell::ring(const bell_address& whom, bool here) const noexcept {
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
