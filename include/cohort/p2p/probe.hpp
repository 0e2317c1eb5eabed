// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::probe` and `cohort::matched_probe`: wait until a message is there, before
/// receiving it; and the message that the second has taken out of the queue.

#include <cohort/comm/operation.hpp>
#include <cohort/mpi/request.hpp>
#include <cohort/p2p/bodies/common.hpp>
#include <cohort/p2p/recv.hpp>

#include <tuple>
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

namespace cohort {

/// Completes when a message with `tag` from rank `source` is there, and leaves it where it is.
///
/// *Requires* a rank of `comm`, `cohort::any_source` or `cohort::no_rank`; a tag or
/// `cohort::any_tag`. The next matching receive takes the message, whoever starts it: where several
/// coroutines receive, use `matched_probe`. *Completion*: `void(std::error_code, status)`.
/// *Cancellation*: total. *Cost*: one look per lap, no message. *Source*: `MPI_Iprobe`.
/// *Example*: `auto st = co_await cohort::probe(world, cohort::any_source, 7);`
template <completion_token_for<void(std::error_code, status)> Token = default_token>
auto probe(const communicator& comm, int source, int tag, Token&& token = Token());

/// The same, and takes the message out of the queue: only the holder of the result can receive it.
///
/// *Completion*: `void(std::error_code, p2p::message)`; the message is also its status, and goes to
/// `cohort::recv` with `std::move`. *Cancellation*: total. *Source*: `MPI_Improbe`.
/// *Example*: `auto message = co_await cohort::matched_probe(world, cohort::any_source, 7);`
template <completion_token_for<void(std::error_code, p2p::message)> Token = default_token>
auto matched_probe(const communicator& comm, int source, int tag, Token&& token = Token());

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained probe(const communicator&, Arguments&&...) {
  p2p::detail::explain_probe<Arguments...>();
  return {};
}
template <class... Arguments>
explained matched_probe(const communicator&, Arguments&&...) {
  p2p::detail::explain_probe<Arguments...>();
  return {};
}

namespace p2p {

/// Which message is looked for.
struct probe_target {
  static constexpr comm::cancels cancellation = comm::cancels::receive;

  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    return detail::check_message(state, source, tag, true);
  }
  void explain(failure_text& text) const { text.with("source", source).with("tag", tag); }
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  [[nodiscard]] int peer() const noexcept { return source; }

  int source;
  int tag;
};

struct probe_body : probe_target {
  using signature = void(std::error_code, status);
  static constexpr const char* name = "probe";

  int post(comm::poster& post) const { return post.add_probe(source, tag, comm::probe_kind::look); }
  std::tuple<status> finish(std::error_code, const comm::outcome_of_requests& outcome) {
    return status(outcome.status);
  }
};

struct matched_probe_body : probe_target {
  using signature = void(std::error_code, message);
  static constexpr const char* name = "matched_probe";

  int post(comm::poster& post) const { return post.add_probe(source, tag); }
  /// The message has an owner from now on, also if the handler is never called.
  bool advance(comm::poster& post) {
    comm::request_operation& op = post.operation();
    found = message(comm, std::exchange(op.message, MPI_MESSAGE_NULL), status(op.status));
    return false;
  }
  std::tuple<message> finish(std::error_code, const comm::outcome_of_requests&) {
    return std::move(found);
  }

  communicator comm;
  message found;
};

}  // namespace p2p

template <completion_token_for<void(std::error_code, status)> Token>
auto probe(const communicator& comm, int source, int tag, Token&& token) {
  return comm::initiate(comm, p2p::probe_body{{source, tag}}, token);
}

template <completion_token_for<void(std::error_code, p2p::message)> Token>
auto matched_probe(const communicator& comm, int source, int tag, Token&& token) {
  return comm::initiate(comm, p2p::matched_probe_body{{source, tag}, comm, p2p::message()}, token);
}

namespace p2p {

template <class Buffer>
struct recv_message_body;
template <class Container>
struct recv_new_message_body;

}  // namespace p2p

/// Receives the message that `cohort::matched_probe` took out of the queue.
///
/// *Requires* a message of this communicator that has not been received yet, else
/// `errc::invalid_argument`. Its size is known, so what does not fit is always found:
/// `errc::message_too_long`, `errc::size_mismatch`. *Completion*: as for the other forms.
/// *Cancellation*: none, the message is here; with an owned buffer terminal lets go of it.
/// *Source*: `MPI_Imrecv`.
/// *Example*: `auto st = co_await cohort::recv(world, std::move(message), buffer);`
template <class Buffer, class Token = default_token>
  requires verb_output<Buffer> &&
           completion_token_for<Token,
                                typename p2p::recv_message_body<comm::kept<Buffer>>::signature>
auto recv(const communicator& comm, p2p::message&& from, Buffer&& buffer, Token&& token = Token()) {
  return comm::initiate(comm, p2p::recv_message_body<comm::kept<Buffer>>(std::move(from), buffer),
                        token);
}

/// The same, into a new container of the message's size.
///
/// *Example*: `auto [text, st] = co_await cohort::recv<std::string>(world, std::move(message));`
template <p2p::receivable Container,
          completion_token_for<void(std::error_code, Container, status)> Token = default_token>
auto recv(const communicator& comm, p2p::message&& from, Token&& token = Token()) {
  return comm::initiate(comm, p2p::recv_new_message_body<Container>(std::move(from)), token);
}

namespace p2p {

/// What both receives of a matched message share.
struct matched {
  explicit matched(message&& from_) noexcept : from(std::move(from_)) {}

  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    return from && from.origin().base() == &state ? errc{} : errc::invalid_argument;
  }
  [[nodiscard]] int peer() const noexcept { return from.source(); }

  message from;  // discarded with the body if it was not received
};

template <class Buffer>
struct recv_message_body : matched, comm::body_over<std::tuple<comm::argument<Buffer>>, status> {
  static constexpr const char* name = "recv";

  recv_message_body(message&& from_, auto& buffer)
      : matched(std::move(from_)), in(buffer, from.source(), from.tag()) {}

  void explain(failure_text& text) const { in.explain(text); }
  [[nodiscard]] std::size_t bytes() const noexcept { return in.data.bytes(); }
  int post(comm::poster& post) {
    in.take(post, from.native(), from.status::native());
    return MPI_SUCCESS;
  }
  auto finish(std::error_code, const comm::outcome_of_requests&) {
    return std::tuple_cat(std::tuple<status>(from), in.data.take());
  }
  template <class Self, class Visit>
  static void each_buffer(Self& self, Visit visit) {
    visit("buffer", self.in.data, false, true);
  }

  detail::incoming<Buffer> in;
};

template <class Container>
struct recv_new_message_body : matched {
  using signature = void(std::error_code, Container, status);
  static constexpr const char* name = "recv";
  static constexpr comm::cancels cancellation = comm::cancels::detach;

  using matched::matched;

  void explain(failure_text& text) const {
    text.with("source", from.source()).with("tag", from.tag()).with("message.bytes", in.length);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  int post(comm::poster& post) {
    in.take(post, from.native(), from.status::native());
    return MPI_SUCCESS;
  }
  auto finish(std::error_code, const comm::outcome_of_requests&) {
    return std::tuple<Container, status>(std::move(in.data), from);
  }

  detail::incoming_new<Container> in;
};

}  // namespace p2p

}  // namespace cohort

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/p2p/detail/message.ipp>
#endif
