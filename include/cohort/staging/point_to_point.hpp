// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// MPI's messages in device memory: `cohort::send`, `cohort::recv`, `cohort::send_recv`.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/p2p.hpp>
#include <cohort/staging/operation.hpp>

#include <cstddef>
#include <utility>

namespace cohort {
namespace staging {

template <send_mode Mode>
struct send_call {
  template <std::size_t, class...>
  [[nodiscard]] static constexpr traffic role(bool) noexcept {
    return {"buffer", true, false};
  }
  template <class...>
  static constexpr bool can_be_direct = true;
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::send<Mode>(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::send<Mode>(comm, std::forward<Arguments>(arguments)...);
  }
};

struct recv_call {
  template <std::size_t, class...>
  [[nodiscard]] static constexpr traffic role(bool) noexcept {
    return {"buffer", false, true};
  }
  template <class...>
  static constexpr bool can_be_direct = true;
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::recv(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::recv(comm, std::forward<Arguments>(arguments)...);
  }
};

struct send_recv_call {
  template <std::size_t I, class...>
  [[nodiscard]] static constexpr traffic role(bool) noexcept {
    return I == 0 ? traffic{"out", true, false} : traffic{"in", false, true};
  }
  template <class...>
  static constexpr bool can_be_direct = true;
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::send_recv(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::send_recv(comm, std::forward<Arguments>(arguments)...);
  }
};

}  // namespace staging

/// Messages from and to device memory: what `staging/collectives.hpp` says of collectives holds for
/// them, but for the order. A message is posted when its data, or the memory for it, is there. So
/// of two messages to one rank with one tag that are under way at the same time either may come
/// first. The other side may use memory of the host. Of a message that is shorter than the buffer
/// only its bytes are written.
///
/// *Cancellation*: a receive is given up, as by `recv`.
/// *Example*: `co_await cohort::send(world, device_halo, right, 7);`
template <class... Arguments>
requires staging::takes<staging::send_call<send_mode::standard>, Arguments...>
auto send(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::send_call<send_mode::standard>>(
      comm, std::forward<Arguments>(arguments)...);
}

/// The same in another mode: `send<send_mode::synchronous>(...)`.
template <send_mode Mode, class... Arguments>
requires staging::takes<staging::send_call<Mode>, Arguments...>
auto send(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::send_call<Mode>>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::recv_call, Arguments...>
auto recv(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::recv_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::send_recv_call, Arguments...>
auto send_recv(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::send_recv_call>(comm, std::forward<Arguments>(arguments)...);
}

}  // namespace cohort

#endif
