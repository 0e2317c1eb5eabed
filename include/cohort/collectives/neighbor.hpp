// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::neighbor_all_gather`, `cohort::neighbor_all_to_all` and their `_v` forms: collectives
/// in which a rank gives to its neighbours in a topology, and gets from them.
///
/// \code
/// auto grid = co_await world.create(cohort::mpi::cartesian::balanced(world.size(), 2));
/// std::vector<int> out(4, world.rank()), in(4, -1);  // one element for each neighbour
/// co_await cohort::neighbor_all_to_all(grid, out, in);
/// \endcode

#include <cohort/collectives/bodies/movement.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>

#include <optional>

namespace cohort {
namespace collectives {

struct neighbor_all_gather_verb;
struct neighbor_all_gather_v_verb;
struct neighbor_all_to_all_verb;
struct neighbor_all_to_all_v_verb;

}  // namespace collectives

/// Gives `in` to every neighbour in the topology of `comm`, and gets theirs in `out`, one block
/// after the other in the order that `mpi::neighbors_of` tells.
///
/// *Collective over* `comm`, in the same order on all ranks. *Requires* a communicator with a
/// topology (`errc::invalid_communicator` otherwise), and room in `out` for as many times the
/// elements of `in` as there are neighbours that send. A grid has two per dimension, lower then
/// upper; the block of one that does not exist, beyond an open end, is left alone. A strided `in`
/// travels through a derived type, a strided `out` is packed. Rvalue containers are owned and come
/// back.
/// *Completion*: `void(std::error_code)`, followed by owned containers in the order of arguments.
/// *Cost*: one message to and from each neighbour. *Source*: `MPI_Ineighbor_allgather`.
/// *Example*: `co_await cohort::neighbor_all_gather(grid, mine, around);`
template <class In, class Out, class Token = default_token>
  requires collectives::detail::movement_call<Token, collectives::neighbor_all_gather_verb, In, Out>
auto neighbor_all_gather(const communicator& comm, In&& in, Out&& out, Token&& token = Token()) {
  return collectives::detail::start_movement<collectives::neighbor_all_gather_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), 0, token);
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained neighbor_all_gather(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::no, Arguments...>();
  return {};
}

/// The same with `counts[i]` elements from the i-th neighbour: counts, or a `block_list`.
/// *Source*: `MPI_Ineighbor_allgatherv`.
template <class In, class Out, block_counts Counts, class Token = default_token>
  requires collectives::detail::movement_call<Token, collectives::neighbor_all_gather_v_verb, In,
                                              Out, collectives::detail::out_list>
auto neighbor_all_gather_v(const communicator& comm, In&& in, Out&& out, Counts&& counts,
                           Token&& token = Token()) {
  collectives::detail::out_list lists{collectives::detail::to_list(counts)};
  return collectives::detail::start_movement<collectives::neighbor_all_gather_v_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), 0, token, std::move(lists));
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained neighbor_all_gather_v(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::no, Arguments...>();
  return {};
}

/// Gives each neighbour a block of its own: the i-th of the equal blocks of `in` goes to the i-th
/// neighbour that receives, and what the i-th that sends has given is the i-th block of `out`.
///
/// *Requires* what `neighbor_all_gather` does, and blocks of one size in both buffers. Strided
/// views are packed. *Source*: `MPI_Ineighbor_alltoall`. *Example*: `co_await
/// cohort::neighbor_all_to_all(grid, edges, halo);`
template <class In, class Out, class Token = default_token>
  requires collectives::detail::movement_call<Token, collectives::neighbor_all_to_all_verb, In, Out>
auto neighbor_all_to_all(const communicator& comm, In&& in, Out&& out, Token&& token = Token()) {
  return collectives::detail::start_movement<collectives::neighbor_all_to_all_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), 0, token);
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained neighbor_all_to_all(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::no, Arguments...>();
  return {};
}

/// The same with blocks of any size: counts per neighbour, or a `block_list`, for both buffers.
/// *Source*: `MPI_Ineighbor_alltoallv`.
template <class In, block_counts InCounts, class Out, block_counts OutCounts,
          class Token = default_token>
  requires collectives::detail::movement_call<Token, collectives::neighbor_all_to_all_v_verb, In,
                                              Out, collectives::detail::both_lists>
auto neighbor_all_to_all_v(const communicator& comm, In&& in, InCounts&& in_counts, Out&& out,
                           OutCounts&& out_counts, Token&& token = Token()) {
  collectives::detail::both_lists lists{collectives::detail::to_list(in_counts),
                                        collectives::detail::to_list(out_counts)};
  return collectives::detail::start_movement<collectives::neighbor_all_to_all_v_verb, In, Out>(
      comm, std::forward<In>(in), std::forward<Out>(out), 0, token, std::move(lists));
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained neighbor_all_to_all_v(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::no, Arguments...>();
  return {};
}

namespace collectives {

namespace detail {

/// Local, and cheap enough to be asked at each start. Empty without a topology.
[[nodiscard]] inline std::optional<block_numbers> degrees_of(const comm::communicator_base& state) {
  const mpi::lock calls;
  const MPI_Comm native = state.plain.data;
  int kind = MPI_UNDEFINED;
  if (MPI_Topo_test(native, &kind) != MPI_SUCCESS) return std::nullopt;
  int in = 0;
  int out = 0;
  int weighted = 0;
  if (kind == MPI_CART && MPI_Cartdim_get(native, &in) == MPI_SUCCESS) {
    in *= 2;
    out = in;
  } else if (kind == MPI_GRAPH &&
             MPI_Graph_neighbors_count(native, state.plain.rank, &in) == MPI_SUCCESS) {
    out = in;
  } else if (kind != MPI_DIST_GRAPH ||
             MPI_Dist_graph_neighbors_count(native, &in, &out, &weighted) != MPI_SUCCESS) {
    return std::nullopt;
  }
  // `in` of the graph arrives in the verb's `out`.
  return block_numbers{static_cast<std::size_t>(out), static_cast<std::size_t>(in)};
}

}  // namespace detail

struct neighboring {
  static constexpr bool rooted = false;
  static constexpr bool own_block_stays = false;
  static constexpr bool reads(detail::place) noexcept { return true; }
  static constexpr bool writes(detail::place) noexcept { return true; }
};

/// One block goes to all neighbours, if there are any.
struct gathering_neighbors : neighboring {
  static std::optional<detail::block_numbers> blocks(detail::place,
                                                     const comm::communicator_base& state) {
    auto numbers = detail::degrees_of(state);
    if (numbers && numbers->in != 0) numbers->in = 1;
    return numbers;
  }
};

/// Each neighbour has a block of its own.
struct exchanging_with_neighbors : neighboring {
  static std::optional<detail::block_numbers> blocks(detail::place,
                                                     const comm::communicator_base& state) {
    return detail::degrees_of(state);
  }
};

struct neighbor_all_gather_verb : gathering_neighbors {
  static constexpr const char* name = "neighbor_all_gather";
  static int post(detail::end in, detail::end out, detail::place, MPI_Comm comm,
                  MPI_Request* request) {
    return mpi::post::ineighbor_allgather(in.data, in.count, in.type, out.data, out.count, out.type,
                                          comm, request);
  }
};

struct neighbor_all_gather_v_verb : gathering_neighbors {
  static constexpr const char* name = "neighbor_all_gather_v";
  static int post(detail::end in, detail::end out, detail::place, MPI_Comm comm,
                  MPI_Request* request) {
    return mpi::post::ineighbor_allgatherv(in.data, in.count, in.type, out.data, *out.parts, comm,
                                           request);
  }
};

struct neighbor_all_to_all_verb : exchanging_with_neighbors {
  static constexpr const char* name = "neighbor_all_to_all";
  static int post(detail::end in, detail::end out, detail::place, MPI_Comm comm,
                  MPI_Request* request) {
    return mpi::post::ineighbor_alltoall(in.data, in.count, in.type, out.data, out.count, out.type,
                                         comm, request);
  }
};

struct neighbor_all_to_all_v_verb : exchanging_with_neighbors {
  static constexpr const char* name = "neighbor_all_to_all_v";
  static int post(detail::end in, detail::end out, detail::place, MPI_Comm comm,
                  MPI_Request* request) {
    return mpi::post::ineighbor_alltoallv(in.data, *in.parts, out.data, *out.parts, comm, request);
  }
};

}  // namespace collectives
}  // namespace cohort
