// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::gather` and `cohort::gather_v`: the root gets the elements of all ranks.

#include <cohort/collectives/bodies/exchange.hpp>
#include <cohort/collectives/bodies/movement.hpp>

namespace cohort {
namespace collectives {

struct gather_verb;
struct gather_v_verb;

}  // namespace collectives

/// Gives rank `root` the `in` of all ranks, one block after the other in the order of the ranks.
///
/// *Collective over* `comm`, in the same order on all ranks. *Requires* the same root, and equally
/// many elements of one type in `in`, on all ranks; at the root, room in `out` for as many times
/// the number of ranks. Elsewhere `out` is ignored and may be empty. A strided `in` travels through
/// a derived type, a strided `out` is packed. Rvalue containers are owned and come back.
/// *Completion*: `void(std::error_code)`, followed by owned containers in the order of arguments.
/// *Cost*: MPI's; the root receives the whole of `out`. *Source*: `MPI_Igather`.
/// *Example*: `co_await cohort::gather(world, mine, all, 0);`
template <class In, class Out, std::integral Root, class Token = default_token>
  requires collectives::detail::movement_call<Token, collectives::gather_verb, In, Out>
auto gather(const communicator& comm, In&& in, Out&& out, Root root, Token&& token = Token()) {
  return collectives::detail::start_movement<collectives::gather_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), collectives::detail::to_rank(root),
      token);
}

/// The same in place. At the root, `buffer` is the result and its own block lies in it already;
/// elsewhere it is what the rank gives.
template <class Buffer, std::integral Root, class Token = default_token>
  requires collectives::detail::movement_call_in_place<Token, collectives::gather_verb, Buffer>
auto gather(const communicator& comm, Buffer&& buffer, Root root, Token&& token = Token()) {
  return collectives::detail::start_movement_in_place<collectives::gather_verb, Buffer>(
      comm, std::forward<Buffer>(buffer), collectives::detail::to_rank(root), token);
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained gather(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::yes, Arguments...>();
  return {};
}

/// Gives rank `root` the `in` of all ranks, of which rank r has `counts[r]` elements.
///
/// *Requires* besides what `gather` does: `counts` (or a `block_list`) at the root. Elsewhere the
/// list is ignored and may be empty.
/// *Source*: `MPI_Igatherv`.
/// *Example*: `co_await cohort::gather_v(world, mine, all, counts, 0);`
template <class In, class Out, block_counts Counts, std::integral Root, class Token = default_token>
  requires collectives::detail::movement_call<Token, collectives::gather_v_verb, In, Out,
                                              collectives::detail::out_list>
auto gather_v(const communicator& comm, In&& in, Out&& out, Counts&& counts, Root root,
              Token&& token = Token()) {
  collectives::detail::out_list lists{collectives::detail::to_list(counts)};
  return collectives::detail::start_movement<collectives::gather_v_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), collectives::detail::to_rank(root), token,
      std::move(lists));
}

/// The same in place, as with `gather`.
template <class Buffer, block_counts Counts, std::integral Root, class Token = default_token>
  requires collectives::detail::movement_call_in_place<Token, collectives::gather_v_verb, Buffer,
                                                       collectives::detail::out_list>
auto gather_v(const communicator& comm, Buffer&& buffer, Counts&& counts, Root root,
              Token&& token = Token()) {
  collectives::detail::out_list lists{collectives::detail::to_list(counts)};
  return collectives::detail::start_movement_in_place<collectives::gather_v_verb, Buffer>(
      comm, std::forward<Buffer>(buffer), collectives::detail::to_rank(root), token,
      std::move(lists));
}

/// The same in a vector, without counts: the ranks tell the root first how much each gives.
///
/// *Completion*: `void(std::error_code, std::vector<T>, std::vector<std::size_t>)`, at the root the
/// elements and how many each rank has given, elsewhere nothing; an owned `in` after that. *Cost*:
/// as that of an `all_gather_v` without counts. *Source*: `MPI_Igather`, `MPI_Igatherv`.
/// *Example*: `auto [all, counts] = co_await cohort::gather_v(world, mine, 0);`
template <class In, std::integral Root, class Token = default_token>
  requires collectives::detail::exchanging_call_into_vector<Token, collectives::gather_verb,
                                                            collectives::gather_v_verb, In>
auto gather_v(const communicator& comm, In&& in, Root root, Token&& token = Token()) {
  return collectives::detail::start_exchange_into_vector<collectives::gather_verb,
                                                         collectives::gather_v_verb, In>(
      comm, std::forward<In>(in), collectives::detail::to_rank(root), token);
}

/// The same into the root's `out`, which may have more room than is needed; what is behind the
/// elements stays. Elsewhere `out` is ignored and may be empty.
///
/// *Completion*: `void(std::error_code, std::vector<std::size_t>)`, at the root how many elements
/// each rank has given, owned containers after that. *Errors*: errc::size_mismatch at the root,
/// with both sizes, if `out` has no room for what comes; the others end well.
/// *Example*: `co_await cohort::gather_v(world, mine, all, cohort::exchanged_counts, 0);`
template <class In, class Out, std::integral Root, class Token = default_token>
  requires collectives::detail::exchanging_call<Token, collectives::gather_verb,
                                                collectives::gather_v_verb, In, Out>
auto gather_v(const communicator& comm, In&& in, Out&& out, exchanged_counts_t, Root root,
              Token&& token = Token()) {
  return collectives::detail::start_exchange<collectives::gather_verb, collectives::gather_v_verb,
                                             In, Out>(comm, std::forward<In>(in),
                                                      std::forward<Out>(out),
                                                      collectives::detail::to_rank(root), token);
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained gather_v(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::yes, Arguments...>();
  return {};
}

namespace collectives {

struct gather_verb : detail::moves_as<op_kind::gather> {
  static constexpr op_kind kind = op_kind::gather;
  static constexpr const char* name = name_of(kind).data();
  static int post(detail::end in, detail::end out, detail::place where, MPI_Comm comm,
                  MPI_Request* request) {
    return mpi::post::igather(in.data, in.count, in.type, out.data, out.count, out.type, where.root,
                              comm, request);
  }
};

struct gather_v_verb : detail::moves_as<op_kind::gather> {
  static constexpr const char* name = "gather_v";
  static int post(detail::end in, detail::end out, detail::place where, MPI_Comm comm,
                  MPI_Request* request) {
    return mpi::post::igatherv(in.data, in.count, in.type, out.data, *out.parts, where.root, comm,
                               request);
  }
};

}  // namespace collectives
}  // namespace cohort
