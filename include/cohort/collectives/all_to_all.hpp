// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::all_to_all` and `cohort::all_to_all_v`: every rank gives a block to every rank.

#include <cohort/collectives/bodies/exchange.hpp>
#include <cohort/collectives/bodies/movement.hpp>

namespace cohort {
namespace collectives {

struct all_to_all_verb;
struct all_to_all_v_verb;

}  // namespace collectives

/// Gives rank r the r-th of the equal blocks of every rank's `in`; they lie in its `out` in the
/// order of the ranks they come from.
///
/// *Collective over* `comm`, in the same order on all ranks. *Requires* equally many elements of
/// one type in `in` and `out`, a multiple of the number of ranks, the same on all ranks; the two do
/// not overlap. Strided views are packed. Rvalue containers are owned and come back.
/// *Completion*: `void(std::error_code)`, followed by owned containers in the order of arguments.
/// *Cost*: MPI's; each rank sends and receives its whole buffers. *Source*: `MPI_Ialltoall`.
/// *Example*: `co_await cohort::all_to_all(world, outgoing, incoming);`
template <class In, class Out, class Token = default_token>
  requires collectives::detail::movement_call<Token, collectives::all_to_all_verb, In, Out>
auto all_to_all(const communicator& comm, In&& in, Out&& out, Token&& token = Token()) {
  return collectives::detail::start_movement<collectives::all_to_all_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), 0, token);
}

/// The same in place: what comes from rank r replaces what went to it.
template <class Buffer, class Token = default_token>
  requires collectives::detail::movement_call_in_place<Token, collectives::all_to_all_verb, Buffer>
auto all_to_all(const communicator& comm, Buffer&& buffer, Token&& token = Token()) {
  return collectives::detail::start_movement_in_place<collectives::all_to_all_verb, Buffer>(
      comm, std::forward<Buffer>(buffer), 0, token);
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained all_to_all(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::no, Arguments...>();
  return {};
}

/// The same with blocks of any size: `in_counts[r]` elements go to rank r, and `out_counts[r]` come
/// from it. Both are counts, or a `block_list` with displacements.
///
/// *Requires* that what one rank sends another is what that rank expects.
/// *Source*: `MPI_Ialltoallv`.
/// *Example*: `co_await cohort::all_to_all_v(world, outgoing, sent, incoming, received);`
template <class In, block_counts InCounts, class Out, block_counts OutCounts,
          class Token = default_token>
  requires collectives::detail::movement_call<Token, collectives::all_to_all_v_verb, In, Out,
                                              collectives::detail::both_lists>
auto all_to_all_v(const communicator& comm, In&& in, InCounts&& in_counts, Out&& out,
                  OutCounts&& out_counts, Token&& token = Token()) {
  collectives::detail::both_lists lists{collectives::detail::to_list(in_counts),
                                        collectives::detail::to_list(out_counts)};
  return collectives::detail::start_movement<collectives::all_to_all_v_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), 0, token, std::move(lists));
}

/// The same in place: `counts[r]` elements are exchanged with rank r.
template <class Buffer, block_counts Counts, class Token = default_token>
  requires collectives::detail::movement_call_in_place<Token, collectives::all_to_all_v_verb,
                                                       Buffer, collectives::detail::both_lists>
auto all_to_all_v(const communicator& comm, Buffer&& buffer, Counts&& counts,
                  Token&& token = Token()) {
  collectives::detail::both_lists lists{collectives::detail::to_list(counts),
                                        collectives::detail::to_list(counts)};
  return collectives::detail::start_movement_in_place<collectives::all_to_all_v_verb, Buffer>(
      comm, std::forward<Buffer>(buffer), 0, token, std::move(lists));
}

/// The same in a vector, without counts of what comes: the ranks tell each other first.
///
/// *Completion*: `void(std::error_code, std::vector<T>, std::vector<std::size_t>)`, what has come
/// and how much from each rank, an owned `in` after that. *Cost*: as that of an `all_gather_v`
/// without counts. *Source*: `MPI_Ialltoall`, `MPI_Ialltoallv`.
/// *Example*: `auto [come, counts] = co_await cohort::all_to_all_v(world, in, sent,
/// cohort::exchanged_counts);`
template <class In, block_counts InCounts, class Token = default_token>
  requires collectives::detail::exchanging_call_into_vector<Token, collectives::all_to_all_verb,
                                                            collectives::all_to_all_v_verb, In,
                                                            collectives::detail::both_lists>
auto all_to_all_v(const communicator& comm, In&& in, InCounts&& in_counts, exchanged_counts_t,
                  Token&& token = Token()) {
  collectives::detail::both_lists lists{collectives::detail::to_list(in_counts), block_list()};
  return collectives::detail::start_exchange_into_vector<collectives::all_to_all_verb,
                                                         collectives::all_to_all_v_verb, In>(
      comm, std::forward<In>(in), 0, token, std::move(lists));
}

/// The same into `out`, which may have more room than is needed; what is behind the elements stays.
///
/// *Completion*: `void(std::error_code, std::vector<std::size_t>)`, how much has come from each
/// rank, owned containers after that. *Errors*: errc::size_mismatch on a rank whose `out` has no
/// room for what comes, with both sizes; the others end well.
/// *Example*: `co_await cohort::all_to_all_v(world, in, sent, out, cohort::exchanged_counts);`
template <class In, block_counts InCounts, class Out, class Token = default_token>
  requires collectives::detail::exchanging_call<Token, collectives::all_to_all_verb,
                                                collectives::all_to_all_v_verb, In, Out,
                                                collectives::detail::both_lists>
auto all_to_all_v(const communicator& comm, In&& in, InCounts&& in_counts, Out&& out,
                  exchanged_counts_t, Token&& token = Token()) {
  collectives::detail::both_lists lists{collectives::detail::to_list(in_counts), block_list()};
  return collectives::detail::start_exchange<collectives::all_to_all_verb,
                                             collectives::all_to_all_v_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), 0, token, std::move(lists));
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained all_to_all_v(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::no, Arguments...>();
  return {};
}

namespace collectives {

struct all_to_all_verb : detail::moves_as<op_kind::all_to_all> {
  static constexpr op_kind kind = op_kind::all_to_all;
  static constexpr const char* name = name_of(kind).data();
  static int post(detail::end in, detail::end out, detail::place, MPI_Comm comm,
                  MPI_Request* request) {
    return mpi::post::ialltoall(in.data, in.count, in.type, out.data, out.count, out.type, comm,
                                request);
  }
};

struct all_to_all_v_verb : detail::moves_as<op_kind::all_to_all> {
  static constexpr const char* name = "all_to_all_v";
  static int post(detail::end in, detail::end out, detail::place, MPI_Comm comm,
                  MPI_Request* request) {
    return mpi::post::ialltoallv(in.data, *in.parts, out.data, *out.parts, comm, request);
  }
};

}  // namespace collectives
}  // namespace cohort
