// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::send_recv`: a message to one rank and one from another, at the same time.

#include <cohort/comm/body.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/p2p/bodies/common.hpp>

#include <tuple>

namespace cohort {
namespace p2p {
template <class Out, class In>
struct send_recv_body;
}  // namespace p2p

/// Sends `out` to rank `destination` and receives from rank `source` into `in`, both with `tag`.
///
/// Ranks that exchange along a ring or with each other cannot block one another. *Requires* what
/// `send` and `recv` do; `out` and `in` do not overlap, and need not have one size or type. Either
/// rank may be `cohort::no_rank`, as at the edge of a domain. *Completion*:
/// `void(std::error_code, status)` with the status of the message received, then the containers
/// that were passed as rvalues. *Cancellation*: the receive is given up as by `recv`; the send
/// cannot be, so the operation ends when it is done. *Cost*: two messages. *Source*: `MPI_Isend`,
/// `MPI_Irecv`. *Example*: `co_await cohort::send_recv(world, edge, right, halo, left, 7);`
template <class Out, class In, class Token = default_token>
  requires verb_input<Out> && verb_output<In> &&
           completion_token_for<Token, typename p2p::send_recv_body<comm::kept_to_read<Out>,
                                                                    comm::kept<In>>::signature>
auto send_recv(const communicator& comm, Out&& out, int destination, In&& in, int source, int tag,
               Token&& token = Token()) {
  return comm::initiate(comm,
                        p2p::send_recv_body<comm::kept_to_read<Out>, comm::kept<In>>(
                            out, destination, in, source, tag),
                        token);
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained send_recv(const communicator&, Arguments&&...) {
  p2p::detail::explain_exchange<Arguments...>();
  return {};
}

namespace p2p {

template <class Out, class In>
struct send_recv_body
    : comm::body_over<std::tuple<comm::argument<Out>, comm::argument<In>>, status> {
  static constexpr const char* name = "send_recv";
  static constexpr comm::cancels cancellation = comm::cancels::receive;

  send_recv_body(auto& out_, int destination_, auto& in_, int source, int tag)
      : out(out_), destination(destination_), in(in_, source, tag) {}

  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    const errc bad = detail::check_message(state, destination, in.tag, false);
    return bad != errc{} ? bad : in.check(state);
  }
  void explain(failure_text& text) const {
    text.with("destination", destination).with("out.count", out.count());
    in.explain(text);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return out.bytes() + in.data.bytes(); }
  [[nodiscard]] int peer() const noexcept { return destination; }

  /// The receive comes last: it is what a cancellation means.
  int post(comm::poster& post) {
    const mpi::layout from(out.view());
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = post.add(mpi::post::isend(from.data(), from.count(), from.type(), destination,
                                             in.tag, post.native(), &request),
                            request);
    return rc != MPI_SUCCESS ? rc : in.post(post);
  }
  bool advance(comm::poster& post) { return in.advance(post); }
  auto finish(std::error_code, const comm::outcome_of_requests& outcome) {
    return std::tuple_cat(std::tuple<status>(in.status_of(outcome)), out.take(), in.data.take());
  }
  template <class Self, class Visit>
  static void each_buffer(Self& self, Visit visit) {
    visit("out", self.out, true, false);
    visit("in", self.in.data, false, true);
  }

  comm::argument<Out> out;
  int destination;
  detail::incoming<In> in;
};

}  // namespace p2p
}  // namespace cohort
