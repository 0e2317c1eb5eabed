// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::all_gather` and `cohort::all_gather_v`: every rank gets the elements of all.

#include <cohort/collectives/bodies/exchange.hpp>
#include <cohort/collectives/bodies/movement.hpp>

namespace cohort {
namespace collectives {

struct all_gather_verb;
struct all_gather_v_verb;

template <class In>
using all_gather_into_vector =
    detail::movement_body<all_gather_v_verb, comm::argument<comm::kept_to_read<In>>,
                          detail::result_vector<element_of_t<In>>, detail::out_list>;

}  // namespace collectives

/// Gives every rank the `in` of all ranks, one block after the other in the order of the ranks.
///
/// *Collective over* `comm`, in the same order on all ranks. *Requires* equally many elements of
/// one type in `in` on all ranks, and room in `out` for as many times the number of ranks; the two
/// do not overlap. A strided `in` travels through a derived type, a strided `out` is packed. Rvalue
/// containers are owned and come back.
/// *Completion*: `void(std::error_code)`, followed by owned containers in the order of arguments.
/// *Cost*: MPI's; each rank receives the whole of `out`. *Source*: `MPI_Iallgather`.
/// *Example*: `co_await cohort::all_gather(world, mine, all);`
template <class In, class Out, class Token = default_token>
  requires collectives::detail::movement_call<Token, collectives::all_gather_verb, In, Out>
auto all_gather(const communicator& comm, In&& in, Out&& out, Token&& token = Token()) {
  return collectives::detail::start_movement<collectives::all_gather_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), 0, token);
}

/// The same in place: rank r's block lies in `buffer` already, as the r-th of equal blocks.
template <class Buffer, class Token = default_token>
  requires collectives::detail::movement_call_in_place<Token, collectives::all_gather_verb, Buffer>
auto all_gather(const communicator& comm, Buffer&& buffer, Token&& token = Token()) {
  return collectives::detail::start_movement_in_place<collectives::all_gather_verb, Buffer>(
      comm, std::forward<Buffer>(buffer), 0, token);
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained all_gather(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::no, Arguments...>();
  return {};
}

/// Gives every rank the elements of all ranks, of which rank r gives `counts[r]`, in a vector.
///
/// *Requires* besides what `all_gather` does: the same `counts` on all ranks, and as many elements
/// in `in` as they say. With a `block_list` the vector is long enough for its last block, and the
/// gaps are zero.
/// *Completion*: `void(std::error_code, std::vector<T>)`, an owned `in` after that.
/// *Source*: `MPI_Iallgatherv`.
/// *Example*: `auto all = co_await cohort::all_gather_v(world, mine, counts);`
template <class In, block_counts Counts, class Token = default_token>
  requires collectives::detail::gatherable<In> &&
           completion_token_for<
               Token, collectives::detail::signature_of<collectives::all_gather_into_vector<In>>>
auto all_gather_v(const communicator& comm, In&& in, Counts&& counts, Token&& token = Token()) {
  using body = collectives::all_gather_into_vector<In>;
  collectives::detail::out_list lists{collectives::detail::to_list(counts)};
  collectives::detail::result_vector<element_of_t<In>> out(lists.out);
  return comm::initiate(comm,
                        body(comm::argument<comm::kept_to_read<In>>(in), std::move(out),
                             collectives::detail::place_in(comm), std::move(lists)),
                        token);
}

/// The same into `out`, where `counts` tells the blocks: counts alone, or a `block_list`.
template <class In, class Out, block_counts Counts, class Token = default_token>
  requires collectives::detail::movement_call<Token, collectives::all_gather_v_verb, In, Out,
                                              collectives::detail::out_list>
auto all_gather_v(const communicator& comm, In&& in, Out&& out, Counts&& counts,
                  Token&& token = Token()) {
  collectives::detail::out_list lists{collectives::detail::to_list(counts)};
  return collectives::detail::start_movement<collectives::all_gather_v_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), 0, token, std::move(lists));
}

/// The same in place: `all_gather_v(world, cohort::in_place, buffer, counts)`. Rank r's block lies
/// in `buffer` already.
template <class Buffer, block_counts Counts, class Token = default_token>
  requires collectives::detail::movement_call_in_place<Token, collectives::all_gather_v_verb,
                                                       Buffer, collectives::detail::out_list>
auto all_gather_v(const communicator& comm, in_place_t, Buffer&& buffer, Counts&& counts,
                  Token&& token = Token()) {
  collectives::detail::out_list lists{collectives::detail::to_list(counts)};
  return collectives::detail::start_movement_in_place<collectives::all_gather_v_verb, Buffer>(
      comm, std::forward<Buffer>(buffer), 0, token, std::move(lists));
}

/// The same in a vector, without counts: the ranks tell each other first how much each gives.
///
/// *Completion*: `void(std::error_code, std::vector<T>, std::vector<std::size_t>)`, the elements
/// and how many each rank has given, an owned `in` after that. *Cost*: a collective more, of one
/// number per rank; collectives that are started on `comm` meanwhile are posted after it. *Source*:
/// `MPI_Iallgather`, `MPI_Iallgatherv`.
/// *Example*: `auto [all, counts] = co_await cohort::all_gather_v(world, mine);`
template <class In, class Token = default_token>
  requires collectives::detail::exchanging_call_into_vector<Token, collectives::all_gather_verb,
                                                            collectives::all_gather_v_verb, In>
auto all_gather_v(const communicator& comm, In&& in, Token&& token = Token()) {
  return collectives::detail::start_exchange_into_vector<collectives::all_gather_verb,
                                                         collectives::all_gather_v_verb, In>(
      comm, std::forward<In>(in), 0, token);
}

/// The same into `out`, which may have more room than is needed; what is behind the elements stays.
///
/// *Completion*: `void(std::error_code, std::vector<std::size_t>)`, how many elements each rank has
/// given, owned containers after that. *Errors*: errc::size_mismatch on a rank whose `out` has no
/// room for what comes, with both sizes. It is received there all the same, into memory that goes,
/// so that the others, who cannot know, end well.
/// *Example*: `auto counts = co_await cohort::all_gather_v(world, in, out,
/// cohort::exchanged_counts);`
template <class In, class Out, class Token = default_token>
  requires collectives::detail::exchanging_call<Token, collectives::all_gather_verb,
                                                collectives::all_gather_v_verb, In, Out>
auto all_gather_v(const communicator& comm, In&& in, Out&& out, exchanged_counts_t,
                  Token&& token = Token()) {
  return collectives::detail::start_exchange<collectives::all_gather_verb,
                                             collectives::all_gather_v_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), 0, token);
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained all_gather_v(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::no, Arguments...>();
  return {};
}

namespace collectives {

struct all_gather_verb : detail::moves_as<op_kind::all_gather> {
  static constexpr op_kind kind = op_kind::all_gather;
  static constexpr const char* name = name_of(kind).data();
  static int post(detail::end in, detail::end out, detail::place, MPI_Comm comm,
                  MPI_Request* request) {
    return mpi::post::iallgather(in.data, in.count, in.type, out.data, out.count, out.type, comm,
                                 request);
  }
};

struct all_gather_v_verb : detail::moves_as<op_kind::all_gather> {
  static constexpr const char* name = "all_gather_v";
  static int post(detail::end in, detail::end out, detail::place, MPI_Comm comm,
                  MPI_Request* request) {
    return mpi::post::iallgatherv(in.data, in.count, in.type, out.data, *out.parts, comm, request);
  }
};

}  // namespace collectives
}  // namespace cohort
