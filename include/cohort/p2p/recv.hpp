// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::recv`: a message from one rank, into a buffer or into a new container of its size.

#include <cohort/comm/body.hpp>
#include <cohort/p2p/bodies/common.hpp>

namespace cohort {
namespace p2p {

template <class Buffer>
struct recv_body;
template <class Container>
struct recv_new_body;

/// A container that can be made as long as a message is.
template <class Container>
concept receivable = owned_buffer<Container> && std::default_initializable<Container> &&
                     requires(Container& container, std::size_t n) { container.resize(n); };

}  // namespace p2p

/// Receives a message with `tag` from rank `source` into `buffer`, which is never resized.
///
/// *Requires* a rank of `comm`, `cohort::any_source` or `cohort::no_rank`; a tag or
/// `cohort::any_tag`. The message may be shorter than the buffer; `status::count<T>()` tells. A
/// longer one is an error: MPI's truncation error, or `errc::message_too_long` with
/// `checks::bounds`, which looks at the size first, and refuses a part of an element with
/// `errc::size_mismatch`. (Open MPI 4.1 writes past the buffer before it reports a message above
/// 4 KiB that is too long, and MPICH 4.0 ends a process that receives a part of an element from
/// itself: use `checks::bounds` where sizes are not certain.) *Completion*:
/// `void(std::error_code, status)`, or with the container after the status.
/// *Cancellation*: total; it ends with `operation_aborted`, or with the message if that came first.
/// *Cost*: one message. *Source*: `MPI_Irecv`, or `MPI_Improbe` and `MPI_Imrecv`.
/// *Example*: `auto st = co_await cohort::recv(world, halo, left, 7);`
template <class Buffer, class Token = default_token>
  requires verb_output<Buffer> &&
           completion_token_for<Token, typename p2p::recv_body<comm::kept<Buffer>>::signature>
auto recv(const communicator& comm, Buffer&& buffer, int source, int tag, Token&& token = Token()) {
  return comm::initiate(comm, p2p::recv_body<comm::kept<Buffer>>(buffer, source, tag), token);
}

/// Receives a message of unknown size: looks for it, makes a container of its size, receives it.
///
/// *Requires* a message of a whole number of elements, else `errc::size_mismatch`: the message is
/// then still taken. *Completion*: `void(std::error_code, Container, status)`.
/// *Cost*: one look per lap until the message is there. *Source*: `MPI_Improbe`, `MPI_Imrecv`.
/// *Example*: `auto [data, st] = co_await cohort::recv<std::vector<int>>(world, source, tag);`
template <p2p::receivable Container,
          completion_token_for<void(std::error_code, Container, status)> Token = default_token>
auto recv(const communicator& comm, int source, int tag, Token&& token = Token()) {
  return comm::initiate(comm, p2p::recv_new_body<Container>(source, tag), token);
}

/// Chosen when a call fits no other form: says what is wrong with it.
template <class... Arguments>
explained recv(const communicator&, Arguments&&...) {
  p2p::detail::explain_message<Arguments...>();
  return {};
}

namespace p2p {

template <class Buffer>
struct recv_body : comm::body_over<std::tuple<comm::argument<Buffer>>, status> {
  static constexpr const char* name = "recv";
  static constexpr comm::cancels cancellation = comm::cancels::receive;

  recv_body(auto& buffer, int source, int tag) : in(buffer, source, tag) {}

  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    return in.check(state);
  }
  void explain(failure_text& text) const { in.explain(text); }
  [[nodiscard]] std::size_t bytes() const noexcept { return in.data.bytes(); }
  [[nodiscard]] int peer() const noexcept { return in.source; }
  int post(comm::poster& post) { return in.post(post); }
  bool advance(comm::poster& post) { return in.advance(post); }
  int block(MPI_Comm on, MPI_Status& result) {
    const mpi::layout into(in.data.view());
    return MPI_Recv(into.data(), into.int_count(), into.type(), in.source, in.tag, on, &result);
  }
  auto finish(std::error_code, const comm::outcome_of_requests& outcome) {
    return std::tuple_cat(std::tuple<status>(in.status_of(outcome)), in.data.take());
  }
  template <class Self, class Visit>
  static void each_buffer(Self& self, Visit visit) {
    visit("buffer", self.in.data, false, true);
  }

  detail::incoming<Buffer> in;
};

template <class Container>
struct recv_new_body {
  using signature = void(std::error_code, Container, status);
  static constexpr const char* name = "recv";
  static constexpr comm::cancels cancellation = comm::cancels::receive;

  recv_new_body(int source_, int tag_) : source(source_), tag(tag_) {}

  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    return detail::check_message(state, source, tag, true);
  }
  void explain(failure_text& text) const {
    text.with("source", source).with("tag", tag).with("message.bytes", in.length);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  [[nodiscard]] int peer() const noexcept { return source; }
  int post(comm::poster& post) const { return post.add_probe(source, tag); }
  bool advance(comm::poster& post) {
    if (in.taken) return false;
    in.take(post, post.operation().message, post.operation().status);
    return true;
  }
  auto finish(std::error_code, const comm::outcome_of_requests& outcome) {
    return std::tuple<Container, status>(std::move(in.data), outcome.status);
  }

  int source;
  int tag;
  detail::incoming_new<Container> in;
};

}  // namespace p2p
}  // namespace cohort
