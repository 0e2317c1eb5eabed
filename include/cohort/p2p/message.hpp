// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A message that a matched probe has taken out of the queue and that is still to be received.

#include <cohort/comm/operation.hpp>
#include <cohort/mpi/request.hpp>

#include <utility>

namespace cohort::p2p {

/// What `cohort::matched_probe` gives: the status of a message and the right to receive it.
///
/// Nobody else can receive it. Give it to `cohort::recv` once. *Dropped*, it is received in the
/// background and thrown away, so that nothing stays inside MPI and the sender completes; this
/// needs memory of its size, and holds work until it is done. After the context has stopped, the
/// destructor does so in place, within the engine's bound for that.
/// It keeps the communicator alive, and like a communicator must not outlive the context.
class message : public status {
 public:
  /// No message.
  message() noexcept {}
  message(communicator origin, MPI_Message native, const status& found) noexcept
      : status(found), origin_(std::move(origin)), native_(native) {}
  message(message&& other) noexcept
      : status(other),
        origin_(std::move(other.origin_)),
        native_(std::exchange(other.native_, MPI_MESSAGE_NULL)) {}
  /// Swaps: the message that was here is dropped with `other`.
  message& operator=(message&& other) noexcept {
    std::swap<status>(*this, other);
    std::swap(origin_, other.origin_);
    std::swap(native_, other.native_);
    return *this;
  }
  ~message() {
    if (native_ != MPI_MESSAGE_NULL) discard();
  }

  /// Whether there is a message to receive.
  [[nodiscard]] explicit operator bool() const noexcept { return native_ != MPI_MESSAGE_NULL; }
  /// The communicator it was sent on.
  [[nodiscard]] const communicator& origin() const noexcept { return origin_; }
  /// MPI's handle, for `MPI_Imrecv`, which sets it to null.
  [[nodiscard]] MPI_Message& native() noexcept { return native_; }

 private:
  void discard() noexcept;
  void discard_in_place();

  communicator origin_;
  MPI_Message native_ = MPI_MESSAGE_NULL;
};

}  // namespace cohort::p2p

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/p2p/detail/message.ipp>
#endif
