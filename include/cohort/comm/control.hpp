// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Control messages: receives that nobody waits for, and sends that wake a receiver that sleeps.
/// They are the library's own, and need not be as many on all ranks, so a communicator does not
/// count them.

#include <cohort/comm/operation.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/mpi/request.hpp>

#include <cstddef>
#include <span>
#include <tuple>

namespace cohort::comm {

struct control_recv_body;
struct control_send_body;

/// Posts a receive that keeps neither `io.run()` nor laps alive: with nothing else pending the
/// engine sleeps and the sender's doorbell wakes it. The layers above build their protocols on it.
///
/// *Requires* a sender that uses \ref control_send on the same communicator. The handler is called
/// by the lap. *Completion*: `void(std::error_code, status)`. *Cancellation*: total.
/// *Cost*: as a receive. *Source*: `MPI_Irecv`.
template <class Token>
auto control_recv(const communicator& comm, std::span<std::byte> buffer, int source, int tag,
                  Token&& token);

/// Sends a message that the other side receives with \ref control_recv. When the message has left
/// and the receiver sleeps, its doorbell is rung.
///
/// A message that is too long to leave at once needs a receiver that is awake: \ref wake_receiver.
///
/// *Completion*: `void(std::error_code)`. *Cost*: a message, and a system call for a rank that is
/// parked or on another node. *Source*: `MPI_Isend`.
template <class Token>
auto control_send(const communicator& comm, std::span<const std::byte> buffer, int destination,
                  int tag, Token&& token);

/// Rings the doorbell of that rank if it sleeps, or might. For messages on their way that MPI can
/// only deliver with the receiver's help; it may fall asleep again before it has helped, so ring
/// again until they have left. *Cost*: a load, and a system call for a rank that is parked or on
/// another node.
inline void wake_receiver(const communicator& comm, int rank) {
  const communicator_state* const state = comm.state();
  if (state != nullptr && state->bells) state->bells->announce(state->bell_rank(rank));
}

// ---- implementation ------------------------------------------------------------------------

struct control_recv_body {
  using signature = void(std::error_code, status);
  static constexpr const char* name = "control_recv";
  static constexpr cancels cancellation = cancels::receive;
  static constexpr bool idle = true;
  static constexpr bool unnumbered = true;

  [[nodiscard]] errc check(const communicator_state&) const noexcept { return errc{}; }
  void explain(failure_text& text) const { text.with("source", source).with("tag", tag); }
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  [[nodiscard]] int peer() const noexcept { return source; }
  int post(poster& post) const {
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(mpi::post::irecv(buffer.data(), static_cast<MPI_Count>(buffer.size()), MPI_BYTE,
                                     source, tag, post.native(), &request),
                    request);
  }
  std::tuple<status> finish(std::error_code, const outcome_of_requests& outcome) const {
    return status(outcome.status);
  }

  std::span<std::byte> buffer;
  int source;
  int tag;
};

struct control_send_body {
  using signature = void(std::error_code);
  static constexpr const char* name = "control_send";
  static constexpr cancels cancellation = cancels::never;
  static constexpr bool unnumbered = true;

  [[nodiscard]] errc check(const communicator_state& state) const noexcept {
    return destination >= 0 && destination < state.peers ? errc{} : errc::bad_rank;
  }
  void explain(failure_text& text) const { text.with("destination", destination).with("tag", tag); }
  [[nodiscard]] std::size_t bytes() const noexcept { return buffer.size(); }
  [[nodiscard]] int peer() const noexcept { return destination; }
  int post(poster& post) const {
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(mpi::post::isend(buffer.data(), static_cast<MPI_Count>(buffer.size()), MPI_BYTE,
                                     destination, tag, post.native(), &request),
                    request);
  }
  std::tuple<> finish(std::error_code error, const outcome_of_requests&) const {
    if (bells && !error) bells->announce(bell_rank);
    return {};
  }

  std::span<const std::byte> buffer;
  int destination;
  int tag;
  std::shared_ptr<const doorbells> bells;
  int bell_rank;
};

template <class Token>
auto control_recv(const communicator& comm, std::span<std::byte> buffer, int source, int tag,
                  Token&& token) {
  if (comm && !comm.state()->bells) comm.state()->source.bell().forbid_parking();
  return initiate(comm, control_recv_body{buffer, source, tag}, token);
}

template <class Token>
auto control_send(const communicator& comm, std::span<const std::byte> buffer, int destination,
                  int tag, Token&& token) {
  control_send_body body{buffer, destination, tag, nullptr, 0};
  if (comm && comm.state()->bells && destination >= 0 && destination < comm.size()) {
    body.bells = comm.state()->bells;
    body.bell_rank = comm.state()->bell_rank(destination);
  }
  return initiate(comm, std::move(body), token);
}

}  // namespace cohort::comm
