// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of mpi/topology.hpp.

#include <cohort/mpi/topology.hpp>

namespace cohort::mpi {

namespace detail {

[[nodiscard]] COHORT_INLINE int topology_of(MPI_Comm native) {
  int kind = MPI_UNDEFINED;
  check(MPI_Topo_test(native, &kind), "MPI_Topo_test");
  return kind;
}

COHORT_INLINE void require_rank(int rank, int size, const char* where) {
  if (rank < 0 || rank >= size) {
    throw error(errc::bad_rank, std::string(where) + ": rank=" + std::to_string(rank) +
                                    ", size=" + std::to_string(size));
  }
}

}  // namespace detail

// ---- cartesian -------------------------------------------------------------------------------

COHORT_INLINE cartesian::cartesian(std::vector<int> dims, std::vector<bool> periodic)
    : dims_(std::move(dims)), periodic_(std::move(periodic)) {
  periodic_.resize(dims_.size(), false);
  for (const int extent : dims_) {
    if (extent <= 0) {
      throw error(errc::invalid_argument, "cartesian: extent=" + std::to_string(extent));
    }
  }
}

COHORT_INLINE cartesian cartesian::balanced(int processes, int dimensions, bool periodic) {
  if (processes <= 0 || dimensions <= 0) {
    throw error(errc::invalid_argument,
                "cartesian::balanced: processes=" + std::to_string(processes) +
                    ", dimensions=" + std::to_string(dimensions));
  }
  const auto n = static_cast<std::size_t>(dimensions);
  std::vector<int> dims(n, 0);
  {
    const lock calls;
    mpi::check(MPI_Dims_create(processes, dimensions, dims.data()), "MPI_Dims_create");
  }
  return cartesian(std::move(dims), std::vector<bool>(n, periodic));
}

COHORT_INLINE cartesian& cartesian::wrap() noexcept {
  periodic_.assign(dims_.size(), true);
  return *this;
}

COHORT_INLINE cartesian& cartesian::wrap(int dimension) {
  if (dimension < 0 || static_cast<std::size_t>(dimension) >= dims_.size()) {
    throw error(errc::invalid_argument, "cartesian::wrap: dimension=" + std::to_string(dimension));
  }
  periodic_[static_cast<std::size_t>(dimension)] = true;
  return *this;
}

COHORT_INLINE cartesian& cartesian::reorder(bool allow) noexcept {
  reorder_ = allow;
  return *this;
}

COHORT_INLINE int cartesian::size() const noexcept {
  int product = 1;
  for (const int extent : dims_) {
    product *= extent;
  }
  return product;
}

COHORT_INLINE void cartesian::check(const comm_ref& over) const {
  long long processes = 1;  // at least, if they are more than there are
  for (const int extent : dims_) {
    if (processes <= over.size()) processes *= extent;
  }
  if (processes > over.size()) {
    throw error(errc::invalid_argument, "cartesian: a grid of " + std::to_string(processes) +
                                            " over size=" + std::to_string(over.size()));
  }
}

COHORT_INLINE comm cartesian::create(const comm_ref& over) const {
  check(over);
  const std::vector<int> periods(periodic_.begin(), periodic_.end());
  const lock calls;
  MPI_Comm result = MPI_COMM_NULL;
  mpi::check(MPI_Cart_create(over.native(), static_cast<int>(dims_.size()), dims_.data(),
                             periods.data(), reorder_ ? 1 : 0, &result),
             "MPI_Cart_create");
  return comm::adopt(result);
}

// ---- grid ------------------------------------------------------------------------------------

COHORT_INLINE grid::grid(const comm_ref& communicator) : native_(communicator.native()) {
  const lock calls;
  if (!communicator || detail::topology_of(native_) != MPI_CART) {
    throw error(errc::invalid_communicator, "mpi::grid needs a Cartesian topology");
  }
  int dimensions = 0;
  check(MPI_Cartdim_get(native_, &dimensions), "MPI_Cartdim_get");
  const auto n = static_cast<std::size_t>(dimensions);
  dims_.resize(n);
  coordinates_.resize(n);
  std::vector<int> periods(n);
  check(MPI_Cart_get(native_, dimensions, dims_.data(), periods.data(), coordinates_.data()),
        "MPI_Cart_get");
  periodic_.assign(periods.begin(), periods.end());
}

COHORT_INLINE std::vector<int> grid::coordinates_of(int rank) const {
  int size = 1;
  for (const int extent : dims_) {
    size *= extent;
  }
  detail::require_rank(rank, size, "grid::coordinates_of");
  std::vector<int> result(dims_.size());
  const lock calls;
  check(MPI_Cart_coords(native_, rank, static_cast<int>(dims_.size()), result.data()),
        "MPI_Cart_coords");
  return result;
}

COHORT_INLINE int grid::rank_at(const std::vector<int>& coordinates) const {
  if (coordinates.size() != dims_.size()) {
    throw error(errc::invalid_argument,
                "grid::rank_at: coordinates=" + std::to_string(coordinates.size()) +
                    ", dimensions=" + std::to_string(dims_.size()));
  }
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    if (!periodic_[i] && (coordinates[i] < 0 || coordinates[i] >= dims_[i])) {
      throw error(errc::invalid_argument,
                  "grid::rank_at: coordinate=" + std::to_string(coordinates[i]) +
                      " in dimension=" + std::to_string(i));
    }
  }
  const lock calls;
  int rank = MPI_PROC_NULL;
  check(MPI_Cart_rank(native_, coordinates.data(), &rank), "MPI_Cart_rank");
  return rank;
}

COHORT_INLINE shift grid::shifted(int dimension, int distance) const {
  if (dimension < 0 || static_cast<std::size_t>(dimension) >= dims_.size()) {
    throw error(errc::invalid_argument, "grid::shifted: dimension=" + std::to_string(dimension));
  }
  const lock calls;
  shift result{MPI_PROC_NULL, MPI_PROC_NULL};
  check(MPI_Cart_shift(native_, dimension, distance, &result.source, &result.destination),
        "MPI_Cart_shift");
  return result;
}

// ---- dist_graph ------------------------------------------------------------------------------

COHORT_INLINE dist_graph& dist_graph::weights(std::vector<int> sources,
                                              std::vector<int> destinations) {
  if (sources.size() != sources_.size() || destinations.size() != destinations_.size()) {
    throw error(errc::size_mismatch, "dist_graph::weights: one weight per edge is needed");
  }
  source_weights_ = std::move(sources);
  destination_weights_ = std::move(destinations);
  weighted_ = true;
  return *this;
}

COHORT_INLINE dist_graph& dist_graph::reorder(bool allow) noexcept {
  reorder_ = allow;
  return *this;
}

COHORT_INLINE void dist_graph::check(const comm_ref& over) const {
  for (const auto* side : {&sources_, &destinations_}) {
    for (const int rank : *side) {
      detail::require_rank(rank, over.size(), "dist_graph");
    }
  }
  for (const auto* side : {&source_weights_, &destination_weights_}) {
    for (const int weight : *side) {
      if (weight >= 0) continue;
      throw error(errc::invalid_argument, "dist_graph: weight=" + std::to_string(weight));
    }
  }
}

COHORT_INLINE comm dist_graph::create(const comm_ref& over) const {
  check(over);
  const lock calls;
  MPI_Comm result = MPI_COMM_NULL;
  // Open MPI wants a non-null pointer also for no weights, which MPI_WEIGHTS_EMPTY provides.
  const auto weights_or_empty = [](const std::vector<int>& list) {
    return list.empty() ? MPI_WEIGHTS_EMPTY : list.data();
  };
  mpi::check(MPI_Dist_graph_create_adjacent(
                 over.native(), static_cast<int>(sources_.size()), sources_.data(),
                 weighted_ ? weights_or_empty(source_weights_) : MPI_UNWEIGHTED,
                 static_cast<int>(destinations_.size()), destinations_.data(),
                 weighted_ ? weights_or_empty(destination_weights_) : MPI_UNWEIGHTED, MPI_INFO_NULL,
                 reorder_ ? 1 : 0, &result),
             "MPI_Dist_graph_create_adjacent");
  return comm::adopt(result);
}

// ---- neighbors_of ----------------------------------------------------------------------------

namespace detail {

COHORT_INLINE neighborhood grid_neighbors(const comm_ref& communicator) {
  const grid where(communicator);
  neighborhood result;
  for (int dimension = 0; static_cast<std::size_t>(dimension) < where.dims().size(); ++dimension) {
    const shift partners = where.shifted(dimension);
    result.sources.push_back(partners.source);
    result.sources.push_back(partners.destination);
  }
  result.destinations = result.sources;
  return result;
}

struct dist_graph_edges {
  neighborhood neighbors;
  bool weighted = false;
  std::vector<int> source_weights;
  std::vector<int> destination_weights;
};

COHORT_INLINE dist_graph_edges edges_of(MPI_Comm native) {
  int incoming = 0;
  int outgoing = 0;
  int weighted = 0;
  check(MPI_Dist_graph_neighbors_count(native, &incoming, &outgoing, &weighted),
        "MPI_Dist_graph_neighbors_count");
  dist_graph_edges result;
  result.weighted = weighted != 0;
  neighborhood& neighbors = result.neighbors;
  neighbors.sources.resize(static_cast<std::size_t>(incoming));
  neighbors.destinations.resize(static_cast<std::size_t>(outgoing));
  // With room, so that no pointer is null.
  result.source_weights.resize(neighbors.sources.size() + 1);
  result.destination_weights.resize(neighbors.destinations.size() + 1);
  check(MPI_Dist_graph_neighbors(native, incoming, neighbors.sources.data(),
                                 result.source_weights.data(), outgoing,
                                 neighbors.destinations.data(), result.destination_weights.data()),
        "MPI_Dist_graph_neighbors");
  result.source_weights.resize(neighbors.sources.size());
  result.destination_weights.resize(neighbors.destinations.size());
  return result;
}

COHORT_INLINE neighborhood dist_graph_neighbors(MPI_Comm native) {
  return edges_of(native).neighbors;
}

COHORT_INLINE neighborhood graph_neighbors(const comm_ref& communicator) {
  int count = 0;
  check(MPI_Graph_neighbors_count(communicator.native(), communicator.rank(), &count),
        "MPI_Graph_neighbors_count");
  neighborhood result;
  result.sources.resize(static_cast<std::size_t>(count));
  check(
      MPI_Graph_neighbors(communicator.native(), communicator.rank(), count, result.sources.data()),
      "MPI_Graph_neighbors");
  result.destinations = result.sources;
  return result;
}

}  // namespace detail

COHORT_INLINE neighborhood neighbors_of(const comm_ref& communicator) {
  const lock calls;
  switch (communicator ? detail::topology_of(communicator.native()) : MPI_UNDEFINED) {
    case MPI_CART:
      return detail::grid_neighbors(communicator);
    case MPI_DIST_GRAPH:
      return detail::dist_graph_neighbors(communicator.native());
    case MPI_GRAPH:
      return detail::graph_neighbors(communicator);
    default:
      throw error(errc::invalid_communicator, "neighbors_of needs a topology");
  }
}

// ---- with_topology_of ------------------------------------------------------------------------

namespace detail {

COHORT_INLINE comm graph_like(MPI_Comm from, const comm_ref& fresh) {
  int nodes = 0;
  int edges = 0;
  check(MPI_Graphdims_get(from, &nodes, &edges), "MPI_Graphdims_get");
  std::vector<int> ends(static_cast<std::size_t>(nodes));
  std::vector<int> neighbors(static_cast<std::size_t>(edges) + 1);
  check(MPI_Graph_get(from, nodes, edges, ends.data(), neighbors.data()), "MPI_Graph_get");
  MPI_Comm result = MPI_COMM_NULL;
  check(MPI_Graph_create(fresh.native(), nodes, ends.data(), neighbors.data(), 0, &result),
        "MPI_Graph_create");
  return comm::adopt(result);
}

}  // namespace detail

COHORT_INLINE comm with_topology_of(const comm_ref& from, comm fresh) {
  const lock calls;
  const int kind = detail::topology_of(from.native());
  if (kind == MPI_CART) {
    const grid like(from);
    return cartesian(like.dims(), like.periodic()).create(fresh);
  }
  if (kind == MPI_DIST_GRAPH) {
    detail::dist_graph_edges edges = detail::edges_of(from.native());
    dist_graph same(std::move(edges.neighbors.sources), std::move(edges.neighbors.destinations));
    if (edges.weighted) {
      same.weights(std::move(edges.source_weights), std::move(edges.destination_weights));
    }
    return same.create(fresh);
  }
  return kind == MPI_GRAPH ? detail::graph_like(from.native(), fresh) : std::move(fresh);
}

}  // namespace cohort::mpi
