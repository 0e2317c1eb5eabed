// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `p2p/probe.hpp`: the end of a message that nobody receives.

#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/p2p/bodies/common.hpp>
#include <cohort/p2p/probe.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

namespace cohort::p2p {

/// Receives a message into memory that nobody looks at.
struct discard_body {
  using signature = void(std::error_code);
  static constexpr const char* name = "discard";
  static constexpr comm::cancels cancellation = comm::cancels::never;

  [[nodiscard]] errc check(const comm::communicator_base&) const noexcept { return errc{}; }
  void explain(failure_text& text) const { text.with("message.bytes", length); }
  [[nodiscard]] std::size_t bytes() const noexcept { return length; }
  int post(comm::poster& post) {
    memory = std::make_unique_for_overwrite<std::byte[]>(length);
    const mpi::layout into(contiguous_view(memory.get(), length));
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(mpi::post::imrecv(into.data(), into.count(), into.type(), &native, &request),
                    request);
  }
  std::tuple<> finish(std::error_code, const comm::outcome_of_requests&) const { return {}; }

  communicator origin;  // alive until the message is here
  MPI_Message native;
  std::size_t length;
  std::unique_ptr<std::byte[]> memory;
};

COHORT_INLINE void message::discard() noexcept try {
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

COHORT_INLINE void message::discard_in_place() {
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
