// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Process topologies: Cartesian grids and distributed graphs, and who is next to whom.

#include <cohort/core/error.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace cohort::mpi {

/// Describes a grid of processes; create() makes the communicator. Ranks are in row-major order, so
/// the last dimension varies fastest, unless MPI may reorder them.
class cartesian {
 public:
  /// One extent per dimension, and for each whether its ends are joined (not, by default).
  explicit cartesian(std::vector<int> dims, std::vector<bool> periodic = {});
  /// The same with the extents one by one, for use in a co_await expression, where g++ 12 rejects
  /// braced lists.
  template <std::same_as<int>... Extent>
  [[nodiscard]] static cartesian of(Extent... extent) {
    std::vector<int> dims;
    (dims.push_back(extent), ...);
    return cartesian(std::move(dims));
  }
  /// Spreads `processes` over so many dimensions as evenly as MPI does.
  [[nodiscard]] static cartesian balanced(int processes, int dimensions, bool periodic = false);

  /// Joins the ends of every dimension, or of one.
  cartesian& wrap() noexcept;
  cartesian& wrap(int dimension);
  /// Lets MPI renumber the ranks to suit the machine.
  cartesian& reorder(bool allow) noexcept;

  [[nodiscard]] const std::vector<int>& dims() const noexcept { return dims_; }
  [[nodiscard]] const std::vector<bool>& periodic() const noexcept { return periodic_; }
  /// The number of processes in the grid.
  [[nodiscard]] int size() const noexcept;

  /// Throws errc::invalid_argument if the grid is larger than the communicator. Local.
  void check(const comm_ref& over) const;
  /// Collective and blocking, after `check`. Ranks beyond the grid get an empty communicator.
  [[nodiscard]] comm create(const comm_ref& over) const;

 private:
  std::vector<int> dims_;
  std::vector<bool> periodic_;
  bool reorder_ = false;
};

/// The ranks on both sides along one dimension; no_rank (MPI_PROC_NULL) beyond an open end.
struct shift {
  int source;
  int destination;
};

/// What a communicator with a Cartesian topology knows. Local: no communication.
class grid {
 public:
  /// Throws errc::invalid_communicator if the communicator has no Cartesian topology.
  explicit grid(const comm_ref& communicator);

  [[nodiscard]] const std::vector<int>& dims() const noexcept { return dims_; }
  [[nodiscard]] const std::vector<bool>& periodic() const noexcept { return periodic_; }
  /// Where this process is.
  [[nodiscard]] const std::vector<int>& coordinates() const noexcept { return coordinates_; }
  /// Where a rank is.
  [[nodiscard]] std::vector<int> coordinates_of(int rank) const;
  /// Who is there. Coordinates outside a dimension that is not periodic throw
  /// errc::invalid_argument; in a periodic one they wrap around.
  [[nodiscard]] int rank_at(const std::vector<int>& coordinates) const;
  /// The partners of a shift by `distance` along a dimension: who sends here, and who receives.
  [[nodiscard]] shift shifted(int dimension, int distance = 1) const;

 private:
  MPI_Comm native_;
  std::vector<int> dims_;
  std::vector<bool> periodic_;
  std::vector<int> coordinates_;
};

/// Describes the edges at this process of a graph; create() makes the communicator.
class dist_graph {
 public:
  /// The ranks that send to this one and those it sends to, in the order in which neighbour
  /// collectives place their blocks.
  dist_graph(std::vector<int> sources, std::vector<int> destinations)
      : sources_(std::move(sources)), destinations_(std::move(destinations)) {}

  /// How much each edge carries, as a hint; as many as there are edges.
  dist_graph& weights(std::vector<int> sources, std::vector<int> destinations);
  /// Lets MPI renumber the ranks to suit the machine.
  dist_graph& reorder(bool allow) noexcept;

  /// Throws errc::bad_rank for a neighbour that is no rank of the communicator, and
  /// errc::invalid_argument for a negative weight. Local.
  void check(const comm_ref& over) const;
  /// Collective and blocking, after `check`, which throws on this rank only. Both ends of each edge
  /// must name it.
  [[nodiscard]] comm create(const comm_ref& over) const;

 private:
  std::vector<int> sources_;
  std::vector<int> destinations_;
  std::vector<int> source_weights_;
  std::vector<int> destination_weights_;
  bool weighted_ = false;
  bool reorder_ = false;
};

/// Gives a communicator of the same ranks the topology of `from`: `fresh` itself where it has none.
/// Collective and blocking over `fresh`.
[[nodiscard]] comm with_topology_of(const comm_ref& from, comm fresh);

/// The neighbours of this process in the order of the blocks of neighbour collectives. A grid has
/// two per dimension, lower then upper, with no_rank beyond an open end.
struct neighborhood {
  std::vector<int> sources;
  std::vector<int> destinations;
};

/// The neighbours in any topology. Local. Throws errc::invalid_communicator without a topology.
[[nodiscard]] neighborhood neighbors_of(const comm_ref& communicator);

}  // namespace cohort::mpi

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/mpi/detail/topology.ipp>
#endif
