// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The receiving half of recv and send_recv: a posted receive, or a look at the size first. A
/// buffer or a type of container enters this room, requests of a `comm::poster` leave it.

#include <cohort/comm/argument.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/p2p/detail/checks.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <system_error>

namespace cohort::p2p::detail {

/// Takes in a message that is refused, so that it does not stay in MPI, and its sender does not
/// wait. As bytes: MPICH 4.0 ends the process when a rank receives, of itself, a message that is no
/// whole number of elements. Where there is no memory for it the message does stay: Open MPI 4.1
/// writes behind the end of a buffer that a message over shared memory does not fit.
class refused {
 public:
  int take(std::size_t length, MPI_Message& message, MPI_Request& request) {
    memory_.reset(new (std::nothrow) std::byte[length]);
    if (!memory_) return MPI_ERR_NO_MEM;
    const mpi::layout into(contiguous_view(memory_.get(), length));
    return mpi::post::imrecv(into.data(), into.count(), into.type(), &message, &request);
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

/// Receives one message into a buffer of fixed size.
template <class Buffer>
struct incoming {
  using data_type = comm::argument<Buffer>;

  incoming(std::remove_reference_t<Buffer>& buffer, int source_, int tag_)
      : data(buffer), source(source_), tag(tag_) {}

  [[nodiscard]] errc check(const comm::communicator_state& state) const noexcept {
    return check_message(state, source, tag, true);
  }
  void explain(failure_text& text) const {
    text.with("source", source).with("tag", tag).with("count", data.count());
    if (refused_bytes != 0) text.with("message.bytes", refused_bytes);
  }

  int post(comm::poster& post) {
    if (post.level() != checks::local) return post.add_probe(source, tag);
    const mpi::layout into(data.view());
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(mpi::post::irecv(into.data(), into.count(), into.type(), source, tag,
                                     post.native(), &request),
                    request);
  }

  /// With `checks::bounds`: a message was found.
  bool advance(comm::poster& post) {
    if (post.level() == checks::local || taken) return false;
    take(post, post.operation().message, post.operation().status);
    return true;
  }

  /// Receives a message that was taken out of the queue, or refuses it: one that is too long, or no
  /// whole number of elements.
  void take(comm::poster& post, MPI_Message& message, const MPI_Status& found) {
    taken = true;
    const std::size_t length = message_bytes(found);
    constexpr std::size_t size = mpi::wire_size<typename data_type::value_type>;
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;
    if (length > data.count() * size || length % size != 0) {
      refused_bytes = length;
      const bool is_too_long = length > data.count() * size;
      post.operation().fail(is_too_long ? errc::message_too_long : errc::size_mismatch);
      rc = rest.take(length, message, request);
    } else {
      const mpi::layout into(data.view());
      rc = mpi::post::imrecv(into.data(), into.count(), into.type(), &message, &request);
    }
    post.check(post.add(rc, request));
  }

  /// MPICH 4.0 reports rank 0 and tag 0 of a posted receive from nobody.
  [[nodiscard]] status status_of(const comm::outcome_of_requests& outcome) const {
    status result(outcome.status);
    if (source == no_rank) {
      result.native().MPI_SOURCE = no_rank;
      result.native().MPI_TAG = any_tag;
    }
    return result;
  }

  data_type data;
  int source;
  int tag;
  bool taken = false;
  std::size_t refused_bytes = 0;
  refused rest;
};

/// Receives a message of unknown size into a container that is made for it.
template <class Container>
struct incoming_new {
  using value_type = element_of_t<Container>;

  /// A message that is no whole number of elements, or too long for the memory that there is, is
  /// taken too, and refused.
  void take(comm::poster& post, MPI_Message& message, const MPI_Status& found) {
    taken = true;
    length = message_bytes(found);
    constexpr std::size_t size = mpi::wire_size<value_type>;
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;
    if (length % size != 0) {
      post.operation().fail(errc::size_mismatch);
    } else {
      try {
        data.resize(length / size);
      } catch (...) {
        post.operation().fail(std::make_error_code(std::errc::not_enough_memory));
      }
    }
    if (post.operation().failed()) {
      rc = rest.take(length, message, request);
    } else {
      const mpi::layout into(view_of(data));
      rc = mpi::post::imrecv(into.data(), into.count(), into.type(), &message, &request);
    }
    post.check(post.add(rc, request));
  }

  bool taken = false;
  std::size_t length = 0;
  Container data;
  refused rest;
};

}  // namespace cohort::p2p::detail
