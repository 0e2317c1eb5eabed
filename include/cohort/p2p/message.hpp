// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A message that a matched probe has taken out of the queue and that is still to be received.

#include <cohort/comm/operation.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/mpi/status.hpp>
#include <cohort/p2p/detail/checks.hpp>

#include <cstddef>
#include <memory>
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

/// Receives a message into memory that nobody looks at.
struct discard_body {
  using signature = void(std::error_code);
  static constexpr const char* name = "discard";
  static constexpr comm::cancels cancellation = comm::cancels::never;

  [[nodiscard]] errc check(const comm::communicator_state&) const noexcept { return errc{}; }
  void explain(failure_text& text) const { text.with("message.bytes", length); }
  [[nodiscard]] std::size_t bytes() const noexcept { return length; }
  int post(comm::poster& post) {
    memory = std::make_unique_for_overwrite<std::byte[]>(length);
    const mpi::layout into(contiguous_view(memory.get(), length));
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(mpi::post::imrecv(into.data(), into.count(), into.type(), &native, &request),
                    request);
  }
  template <class Handler>
  void finish(Handler&& handler, std::error_code error, const comm::outcome_of_requests&) {
    std::forward<Handler>(handler)(error);
  }

  communicator origin;  // alive until the message is here
  MPI_Message native;
  std::size_t length;
  std::unique_ptr<std::byte[]> memory;
};

inline void message::discard() noexcept try {
  comm::communicator_state& state = *origin_.state();
  if (state.source.usable() != errc{}) return;  // MPI is gone, and the message with it
  if (state.engine.stopped()) return discard_in_place();
  auto token = asio::detached;
  const communicator keep = origin_;
  discard_body body{std::move(origin_), std::exchange(native_, MPI_MESSAGE_NULL),
                    detail::message_bytes(status::native()), nullptr};
  comm::initiate(keep, std::move(body), token);
} catch (const std::exception& problem) {
  log::write(log::level::error,
             std::string("a dropped message stays inside MPI: ") + problem.what());
}

inline void message::discard_in_place() {
  comm::communicator_state& state = *origin_.state();
  const std::size_t length = detail::message_bytes(status::native());
  auto memory = std::make_unique_for_overwrite<std::byte[]>(length);
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const comm::request_source::guard hold(state.source);
    const mpi::layout into(contiguous_view(memory.get(), length));
    mpi::check(mpi::post::imrecv(into.data(), into.count(), into.type(), &native_, &request),
               "MPI_Imrecv");
  }
  const auto arrived = [&] {
    const comm::request_source::guard hold(state.source);
    int done = 0;
    return MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  };
  if (state.engine.drive_until(arrived, state.engine.drain_bound())) return;
  process::add_leftovers("  a dropped message from rank " + std::to_string(source()) + ", " +
                         std::to_string(length) + " bytes\n");
  static_cast<void>(memory.release());  // MPI may still write there
}

}  // namespace cohort::p2p
