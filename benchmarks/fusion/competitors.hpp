// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The competitors of this benchmark: each sums a set of tensors over the ranks, in place, and
/// returns nanoseconds for the set.

#include <cohort/coordinator.hpp>

#include <cstddef>
#include <string>
#include <vector>

using tensor_set = std::vector<std::vector<float>>;

namespace raw_mpi {

/// Copies tensors of up to so many bytes together into a buffer, sums that and copies back.
struct pack_policy {
  std::size_t bytes;
  std::size_t in_flight;  ///< buffers at once; 0: blocking
};

double packed(MPI_Comm comm, tensor_set& tensors, pack_policy policy);
/// Only the copies.
double copied(tensor_set& tensors, std::size_t bytes);
double singly(MPI_Comm comm, tensor_set& tensors);  // MPI_Iallreduce for each, MPI_Waitall
double blocking_singly(MPI_Comm comm, tensor_set& tensors);
/// One after the other: MPI_Iallreduce of 8 B, MPI_Wait. Nanoseconds for one.
double small_all_reduce(MPI_Comm comm, int rounds);

}  // namespace raw_mpi

namespace with_cohort {

using names = std::vector<std::string>;

asio::awaitable<double> callbacks(cohort::coordinator coord, tensor_set& tensors, const names& by);
asio::awaitable<double> futures(cohort::coordinator coord, tensor_set& tensors, const names& by);
/// The average of one.
asio::awaitable<double> average(cohort::coordinator coord, std::vector<float>& tensor,
                                std::string name, cohort::compression how);

/// Does nothing, at once: what is left is the cost of naming, negotiating, planning and packing.
class instant_backend {
 public:
  explicit instant_backend(asio::io_context::executor_type executor);
  [[nodiscard]] bool takes(const cohort::comm::collective_call&) noexcept { return true; }
  /// One handler of the loop ends all that have been started before it runs.
  void start(const cohort::comm::collective_call&, cohort::comm::backend_completion done);

 private:
  struct state;
  std::shared_ptr<state> state_;
};

}  // namespace with_cohort
