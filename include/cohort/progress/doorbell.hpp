// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Wakes an engine that sleeps in the reactor: a datagram that carries a token and nothing else.

#include <cohort/core/asio.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/engine.hpp>

#include <atomic>
#include <cstdint>

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
/// An engine that parks says so through a flag that ranks of its host see; other ranks ring with
/// every message, once. A datagram between hosts may be lost, or never arrive where UDP is filtered
/// or the first address does not lead there: so an engine that is rung from other hosts also looks
/// once a second.
class doorbell final : public wake_up {
 public:
  /// Throws `std::system_error` if no socket can be had.
  explicit doorbell(engine& owner);
  COHORT_INLINE ~doorbell() override;
  doorbell(const doorbell&) = delete;
  doorbell& operator=(const doorbell&) = delete;

  COHORT_INLINE void arm() override;
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

}  // namespace cohort::progress

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/progress/doorbell.ipp>
#endif
