// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the bodies of messages have in common: what a rank can see to be wrong with a
/// message, the words for a call that does not fit, and the receiving half of recv and send_recv,
/// which is a posted receive, or a look at the size first. A buffer or a type of container enters
/// this room, requests of a `comm::poster` leave it.

#include <cohort/comm/body.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/core/devices.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/mpi/request.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <system_error>
#include <tuple>
#include <type_traits>

namespace cohort::p2p {
class message;
}

namespace cohort::p2p::detail {

/// `wildcards`: the message is received, so any source and any tag will do.
[[nodiscard]] inline errc check_message(const comm::communicator_base& state, int peer, int tag,
                                        bool wildcards) noexcept {
  const bool known_peer =
      (peer >= 0 && peer < state.peers) || peer == no_rank || (wildcards && peer == any_source);
  if (!known_peer) return errc::bad_rank;
  const bool known_tag = (tag >= 0 && tag <= state.max_tag) || (wildcards && tag == any_tag);
  return known_tag ? errc{} : errc::bad_tag;
}

/// The length of a message that a probe found.
[[nodiscard]] inline std::size_t message_bytes(const MPI_Status& found) {
  MPI_Count length = 0;
  mpi::check(MPI_Get_elements_x(&found, MPI_BYTE, &length), "MPI_Get_elements_x");
  return static_cast<std::size_t>(length);
}

template <class...>
inline constexpr bool never = false;

/// A compile error that says what is wrong with the arguments of a sending or receiving verb.
template <class... Arguments>
consteval void explain_message() {
  comm::require_tokens<Arguments...>();
  using first = std::tuple_element_t<0, std::tuple<Arguments&&..., int>>;
  constexpr bool is_message = std::is_same_v<std::remove_cvref_t<first>, message>;
  constexpr bool is_buffer = comm::any_buffer<first>;
  static_assert(
      !is_message,
      "a matched message is received once: pass it with std::move, then a buffer that can "
      "be written, or use recv<Container>(comm, std::move(message))");
  if constexpr (!is_message) static_cast<void>(comm::require_buffer<first, Arguments...>());
  static_assert(!is_buffer || never<Arguments...>,
                "this call does not fit: after the buffer come a rank and a tag, both int, then a "
                "completion token; a receive needs a buffer that can be written");
}

/// The same for an exchange.
template <class... Arguments>
consteval void explain_exchange() {
  comm::require_tokens<Arguments...>();
  static_assert(never<Arguments...>,
                "this call does not fit: it is send_recv(communicator, out, destination, in, "
                "source, tag[, token]), with two buffers, of which the second can be written (no "
                "temporary that would dangle), and three int");
}

/// The same for a message of a batch.
template <class... Arguments>
consteval void explain_batched() {
  using first = std::tuple_element_t<0, std::tuple<Arguments&&..., int>>;
  constexpr bool is_owned =
      owned_buffer<std::remove_reference_t<first>> && !std::is_lvalue_reference_v<first>;
  constexpr bool is_off_host = located_buffer<std::remove_reference_t<first>>;
  static_assert(!is_owned || never<Arguments...>,
                "a batch borrows its buffers and can run again: pass a lvalue, a span or a strided "
                "view that outlives its runs, not a container that is moved in");
  static_assert(!is_off_host || never<Arguments...>,
                "a batch takes no device memory: use cohort::send and cohort::recv");
  if constexpr (!is_owned && !is_off_host) explain_message<Arguments...>();
}

/// The same for a look at the queue.
template <class... Arguments>
consteval void explain_probe() {
  static_assert(
      never<Arguments...>,
      "this call does not fit: after the communicator come a source (or any_source) and a "
      "tag (or any_tag), both int, then a completion token");
}

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

/// Receives one message into memory of fixed size, whose type it need not know: `lay_out()` gives
/// its mpi::layout where one is needed.
struct arrival {
  arrival(int source_, int tag_) noexcept : source(source_), tag(tag_) {}

  template <class LayOut>
  int post(comm::poster& post, LayOut lay_out) const {
    if (post.level() != checks::local) return post.add_probe(source, tag);
    const mpi::layout into = lay_out();
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(mpi::post::irecv(into.data(), into.count(), into.type(), source, tag,
                                     post.native(), &request),
                    request);
  }

  /// Receives a message that was taken out of the queue, or refuses it: one that is longer than
  /// `count` elements of `size` bytes, or no whole number of them.
  template <class LayOut>
  void take(comm::poster& post, MPI_Message& message, const MPI_Status& found, std::size_t count,
            std::size_t size, LayOut lay_out) {
    taken = true;
    const std::size_t length = message_bytes(found);
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;
    if (length > count * size || length % size != 0) {
      refused_bytes = length;
      const bool is_too_long = length > count * size;
      post.operation().fail(is_too_long ? errc::message_too_long : errc::size_mismatch);
      rc = rest.take(length, message, request);
    } else {
      const mpi::layout into = lay_out();
      rc = mpi::post::imrecv(into.data(), into.count(), into.type(), &message, &request);
    }
    post.check(post.add(rc, request));
  }

  /// MPICH 4.0 reports rank 0 and tag 0 of a posted receive from nobody.
  [[nodiscard]] status status_of(const MPI_Status& native) const {
    status result(native);
    if (source == no_rank) {
      result.native().MPI_SOURCE = no_rank;
      result.native().MPI_TAG = any_tag;
    }
    return result;
  }

  int source;
  int tag;
  bool taken = false;
  std::size_t refused_bytes = 0;
  refused rest;
};

/// Receives one message into a buffer of fixed size.
template <class Buffer>
struct incoming : arrival {
  using data_type = comm::argument<Buffer>;

  incoming(auto& buffer, int from, int with_tag) : arrival(from, with_tag), data(buffer) {}

  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    return check_message(state, source, tag, true);
  }
  void explain(failure_text& text) const {
    text.with("source", source).with("tag", tag).with("count", data.count());
    if (refused_bytes != 0) text.with("message.bytes", refused_bytes);
  }

  int post(comm::poster& post) {
    return arrival::post(post, [this] { return mpi::layout(data.view()); });
  }

  /// With `checks::bounds`: a message was found.
  bool advance(comm::poster& post) {
    if (post.level() == checks::local || taken) return false;
    take(post, post.operation().message, post.operation().status);
    return true;
  }
  void take(comm::poster& post, MPI_Message& message, const MPI_Status& found) {
    constexpr std::size_t size = mpi::wire_size<typename data_type::value_type>;
    arrival::take(post, message, found, data.count(), size,
                  [this] { return mpi::layout(data.view()); });
  }

  [[nodiscard]] status status_of(const comm::outcome_of_requests& outcome) const {
    return arrival::status_of(outcome.status);
  }

  data_type data;
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
