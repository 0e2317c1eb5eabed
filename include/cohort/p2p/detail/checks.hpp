// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What a rank can see to be wrong with a message, and the words for a call that does not fit.

#include <cohort/comm/communicator.hpp>
#include <cohort/core/devices.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/mpi/request.hpp>

#include <tuple>
#include <type_traits>

namespace cohort::p2p {
class message;
}

namespace cohort::p2p::detail {

/// `wildcards`: the message is received, so any source and any tag will do.
[[nodiscard]] inline errc check_message(const comm::communicator_state& state, int peer, int tag,
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
  using first = std::tuple_element_t<0, std::tuple<Arguments&&..., int>>;
  constexpr bool is_message = std::is_same_v<std::remove_cvref_t<first>, message>;
  constexpr bool is_buffer = verb_input<first> || owned_buffer<std::remove_reference_t<first>>;
  static_assert(
      !is_message,
      "a matched message is received once: pass it with std::move, then a buffer that can "
      "be written, or use recv<Container>(comm, std::move(message))");
  static_assert(is_message || is_buffer,
                "the first argument is no buffer: pass a contiguous range or scalar lvalue, a "
                "span, a strided view, or a container rvalue (a temporary would dangle)");
  static_assert(!is_buffer || never<Arguments...>,
                "this call does not fit: after the buffer come a rank and a tag, both int, then a "
                "completion token; a receive needs a buffer that can be written");
}

/// The same for an exchange.
template <class... Arguments>
consteval void explain_exchange() {
  static_assert(never<Arguments...>,
                "this call does not fit: it is send_recv(communicator, out, destination, in, "
                "source, tag[, token]), with two buffers, of which the second can be written (no "
                "temporary that would dangle), and three int");
}

/// The same for a look at the queue.
template <class... Arguments>
consteval void explain_probe() {
  static_assert(
      never<Arguments...>,
      "this call does not fit: after the communicator come a source (or any_source) and a "
      "tag (or any_tag), both int, then a completion token");
}

}  // namespace cohort::p2p::detail
