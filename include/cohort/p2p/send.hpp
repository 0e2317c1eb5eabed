// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::send`: a message to one rank, in MPI's standard, synchronous or ready mode.

#include <cohort/comm/body.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/p2p/bodies/common.hpp>

namespace cohort {

/// MPI's send modes. `standard` may complete before the receive is posted; `synchronous` completes
/// when the receive has been matched; `ready` requires that it is posted already.
enum class send_mode : std::uint8_t { standard, synchronous, ready };

namespace p2p {
template <class Buffer, send_mode Mode>
struct send_body;
}  // namespace p2p

/// Sends `buffer` to rank `destination` with `tag`.
///
/// *Requires* a rank of `comm` or `cohort::no_rank`, and a tag from 0 to MPI's limit; a matching
/// receive on the other side. Strided views travel through a derived type.
/// *Completion*: `void(std::error_code)`, or `void(std::error_code, Container)` for an rvalue. It
/// means that the buffer may be used again, not that the message has arrived.
/// *Cost*: one message. *Source*: `MPI_Isend`, `MPI_Issend`, `MPI_Irsend`.
/// *Example*: `co_await cohort::send(world, halo, right, 7);`
template <send_mode Mode = send_mode::standard, class Buffer, class Token = default_token>
  requires verb_input<Buffer> &&
           completion_token_for<
               Token, typename p2p::send_body<comm::kept_to_read<Buffer>, Mode>::signature>
auto send(const communicator& comm, Buffer&& buffer, int destination, int tag,
          Token&& token = Token()) {
  return comm::initiate(
      comm, p2p::send_body<comm::kept_to_read<Buffer>, Mode>(buffer, destination, tag), token);
}

/// Chosen when a call fits no other form: says what is wrong with it.
template <class... Arguments>
explained send(const communicator&, Arguments&&...) {
  p2p::detail::explain_message<Arguments...>();
  return {};
}

namespace p2p {

template <class Buffer, send_mode Mode>
struct send_body : comm::body_over<std::tuple<comm::argument<Buffer>>> {
  static constexpr const char* name = Mode == send_mode::standard      ? "send"
                                      : Mode == send_mode::synchronous ? "send<synchronous>"
                                                                       : "send<ready>";

  send_body(auto& buffer, int destination_, int tag_)
      : data(buffer), destination(destination_), tag(tag_) {}

  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    return detail::check_message(state, destination, tag, false);
  }
  void explain(failure_text& text) const {
    text.with("destination", destination).with("tag", tag).with("count", data.count());
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return data.bytes(); }
  [[nodiscard]] int peer() const noexcept { return destination; }
  int post(comm::poster& post) {
    const mpi::layout from(data.view());
    MPI_Request request = MPI_REQUEST_NULL;
    constexpr auto call = Mode == send_mode::standard      ? &mpi::post::isend
                          : Mode == send_mode::synchronous ? &mpi::post::issend
                                                           : &mpi::post::irsend;
    return post.add(
        call(from.data(), from.count(), from.type(), destination, tag, post.native(), &request),
        request);
  }
  int block(MPI_Comm on, MPI_Status&) {
    const mpi::layout from(data.view());
    constexpr auto call = Mode == send_mode::standard      ? &MPI_Send
                          : Mode == send_mode::synchronous ? &MPI_Ssend
                                                           : &MPI_Rsend;
    return call(from.data(), from.int_count(), from.type(), destination, tag, on);
  }
  auto finish(std::error_code, const comm::outcome_of_requests&) { return data.take(); }
  template <class Self, class Visit>
  static void each_buffer(Self& self, Visit visit) {
    visit("buffer", self.data, true, false);
  }

  comm::argument<Buffer> data;
  int destination;
  int tag;
};

}  // namespace p2p
}  // namespace cohort
