// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How many neighbours a rank has in the topology of its communicator.

#include <cohort/collectives/detail/movement.hpp>
#include <cohort/mpi/native.hpp>

#include <optional>

namespace cohort::collectives::detail {

/// Local, and cheap enough to be asked at each start. Empty without a topology.
[[nodiscard]] inline std::optional<block_numbers> degrees_of(
    const comm::communicator_state& state) {
  const comm::request_source::guard hold(state.source);
  const MPI_Comm native = state.data.native();
  int kind = MPI_UNDEFINED;
  if (MPI_Topo_test(native, &kind) != MPI_SUCCESS) return std::nullopt;
  int in = 0;
  int out = 0;
  int weighted = 0;
  if (kind == MPI_CART && MPI_Cartdim_get(native, &in) == MPI_SUCCESS) {
    in *= 2;
    out = in;
  } else if (kind == MPI_GRAPH &&
             MPI_Graph_neighbors_count(native, state.data.rank(), &in) == MPI_SUCCESS) {
    out = in;
  } else if (kind != MPI_DIST_GRAPH ||
             MPI_Dist_graph_neighbors_count(native, &in, &out, &weighted) != MPI_SUCCESS) {
    return std::nullopt;
  }
  // `in` of the graph arrives in the verb's `out`.
  return block_numbers{static_cast<std::size_t>(out), static_cast<std::size_t>(in)};
}

}  // namespace cohort::collectives::detail
