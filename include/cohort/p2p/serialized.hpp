// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::send` and `cohort::recv` of objects: `cohort::serialized(x)` in the place of a buffer.

#include <cohort/comm/operation.hpp>
#include <cohort/comm/serialized.hpp>
#include <cohort/p2p/bodies/common.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>

#include <cstddef>
#include <system_error>
#include <tuple>
#include <vector>

namespace cohort {
namespace p2p {
template <send_mode Mode>
struct send_object_body;
template <class T>
struct recv_object_body;
}  // namespace p2p

/// Sends an object to rank `destination` with `tag`. It is serialized before the call returns,
/// which throws what that throws; the object may then change.
///
/// *Completion*: `void(std::error_code)`. *Cancellation*: terminal lets go, and MPI sends on.
/// *Cost*: one message. *Source*: `MPI_Isend`, `MPI_Issend`, `MPI_Irsend`.
/// *Example*: `co_await cohort::send(world, cohort::serialized(config), right, 7);`
template <send_mode Mode = send_mode::standard, class T,
          completion_token_for<void(std::error_code)> Token = default_token>
auto send(const communicator& comm, serialized_ref<T> object, int destination, int tag,
          Token&& token = Token()) {
  return comm::initiate(
      comm, p2p::send_object_body<Mode>(comm::encode_object(object.object()), destination, tag),
      token);
}

/// Receives an object that was sent in this way. A message of anything else, or that is too long,
/// is taken too, and refused. From `cohort::no_rank` nothing comes, and the object stays as it is.
///
/// *Requires* an object that can be written and that lives until the end. *Completion*:
/// `void(std::error_code, status)`. *Cancellation*: total. *Errors*: those of
/// `cohort::serialized`. *Cost*: one look per lap until the message is there. *Source*:
/// `MPI_Improbe`, `MPI_Imrecv`.
/// *Example*: `co_await cohort::recv(world, cohort::serialized(config), left, 7);`
template <class T, completion_token_for<void(std::error_code, status)> Token = default_token>
  requires(!std::is_const_v<T>)
auto recv(const communicator& comm, serialized_ref<T> object, int source, int tag,
          Token&& token = Token()) {
  return comm::initiate(comm, p2p::recv_object_body<T>(object, source, tag), token);
}

namespace p2p {

/// A send of bytes that it owns and does not give back.
template <send_mode Mode>
struct send_object_body : send_body<std::vector<std::byte>, Mode> {
  using signature = void(std::error_code);

  send_object_body(std::vector<std::byte> bytes, int to, int with_tag)
      : send_body<std::vector<std::byte>, Mode>(bytes, to, with_tag) {}

  std::tuple<> finish(std::error_code, const comm::outcome_of_requests&) { return {}; }
};

/// Receives bytes as a container of unknown size is received, and then reads them.
template <class T>
struct recv_object_body : recv_new_body<std::vector<std::byte>> {
  using base = recv_new_body<std::vector<std::byte>>;
  using signature = void(std::error_code, status);

  recv_object_body(serialized_ref<T> object, int source_, int tag_)
      : base(source_, tag_), to(object) {}

  void explain(failure_text& text) const {
    text.with("source", source).with("tag", tag);
    to.explain(text, in.length);
  }
  bool advance(comm::poster& post) {
    if (in.taken) {
      if (source != no_rank) post.operation().fail(to.assign(in.data));
      return false;
    }
    in.length = detail::message_bytes(post.operation().status);
    if (to.takes(in.length)) return base::advance(post);
    in.taken = true;
    post.operation().fail(errc::message_too_long);
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = in.rest.take(in.length, post.operation().message, request);
    post.check(post.add(rc, request));
    return true;
  }
  std::tuple<status> finish(std::error_code, const comm::outcome_of_requests& outcome) {
    return {status(outcome.status)};
  }

  comm::object_end<T> to;
};

}  // namespace p2p
}  // namespace cohort
