// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::scatter` and `cohort::scatter_v`: every rank gets its block of the root's elements.

#include <cohort/collectives/bodies/movement.hpp>

namespace cohort {
namespace collectives {

struct scatter_verb;
struct scatter_v_verb;

}  // namespace collectives

/// Gives rank r the r-th of the equal blocks of the `in` of rank `root`.
///
/// *Collective over* `comm`, in the same order on all ranks. *Requires* the same root, and equally
/// many elements of one type in `out`, on all ranks; at the root, as many times the number of ranks
/// in `in`. Elsewhere `in` is ignored and may be empty. A strided `out` travels through a derived
/// type, a strided `in` is packed. Rvalue containers are owned and come back.
/// *Completion*: `void(std::error_code)`, followed by owned containers in the order of arguments.
/// *Cost*: MPI's; the root sends the whole of `in`. *Source*: `MPI_Iscatter`.
/// *Example*: `co_await cohort::scatter(world, all, mine, 0);`
template <class In, class Out, std::integral Root, class Token = default_token>
  requires collectives::detail::movement_call<Token, collectives::scatter_verb, In, Out>
auto scatter(const communicator& comm, In&& in, Out&& out, Root root, Token&& token = Token()) {
  return collectives::detail::start_movement<collectives::scatter_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), collectives::detail::to_rank(root),
      token);
}

/// The same in place. At the root, `buffer` holds all blocks and its own stays where it is;
/// elsewhere it is what the rank gets.
template <class Buffer, std::integral Root, class Token = default_token>
  requires collectives::detail::movement_call_in_place<Token, collectives::scatter_verb, Buffer>
auto scatter(const communicator& comm, Buffer&& buffer, Root root, Token&& token = Token()) {
  return collectives::detail::start_movement_in_place<collectives::scatter_verb, Buffer>(
      comm, std::forward<Buffer>(buffer), collectives::detail::to_rank(root), token);
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained scatter(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::yes, Arguments...>();
  return {};
}

/// Gives rank r the r-th block of the `in` of rank `root`, which has `counts[r]` elements.
///
/// *Requires* besides what `scatter` does: `counts` (or a `block_list`) at the root. Elsewhere the
/// list is ignored and may be empty.
/// *Source*: `MPI_Iscatterv`.
/// *Example*: `co_await cohort::scatter_v(world, all, mine, counts, 0);`
template <class In, class Out, block_counts Counts, std::integral Root, class Token = default_token>
  requires collectives::detail::movement_call<Token, collectives::scatter_v_verb, In, Out,
                                              collectives::detail::in_list>
auto scatter_v(const communicator& comm, In&& in, Out&& out, Counts&& counts, Root root,
               Token&& token = Token()) {
  collectives::detail::in_list lists{collectives::detail::to_list(counts)};
  return collectives::detail::start_movement<collectives::scatter_v_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), collectives::detail::to_rank(root), token,
      std::move(lists));
}

/// The same in place, as with `scatter`.
template <class Buffer, block_counts Counts, std::integral Root, class Token = default_token>
  requires collectives::detail::movement_call_in_place<Token, collectives::scatter_v_verb, Buffer,
                                                       collectives::detail::in_list>
auto scatter_v(const communicator& comm, Buffer&& buffer, Counts&& counts, Root root,
               Token&& token = Token()) {
  collectives::detail::in_list lists{collectives::detail::to_list(counts)};
  return collectives::detail::start_movement_in_place<collectives::scatter_v_verb, Buffer>(
      comm, std::forward<Buffer>(buffer), collectives::detail::to_rank(root), token,
      std::move(lists));
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained scatter_v(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::yes, Arguments...>();
  return {};
}

namespace collectives {

struct scatter_verb : detail::moves_as<op_kind::scatter> {
  static constexpr op_kind kind = op_kind::scatter;
  static constexpr const char* name = name_of(kind).data();
  static int post(detail::end in, detail::end out, detail::place where, MPI_Comm comm,
                  MPI_Request* request) {
    return mpi::post::iscatter(in.data, in.count, in.type, out.data, out.count, out.type,
                               where.root, comm, request);
  }
};

struct scatter_v_verb : detail::moves_as<op_kind::scatter> {
  static constexpr const char* name = "scatter_v";
  static int post(detail::end in, detail::end out, detail::place where, MPI_Comm comm,
                  MPI_Request* request) {
    return mpi::post::iscatterv(in.data, *in.parts, out.data, out.count, out.type, where.root, comm,
                                request);
  }
};

}  // namespace collectives
}  // namespace cohort
