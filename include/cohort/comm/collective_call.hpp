// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A collective as what does it in place of MPI sees it.

#include <cohort/core/kinds.hpp>
#include <cohort/mpi/native.hpp>

#include <cstddef>
#include <cstdint>

namespace cohort::comm {

class scattered_data;  // comm/backend.hpp

/// A direct collective over contiguous buffers, as a backend sees it. `in` is `MPI_IN_PLACE` for
/// operations in place. Everything but the pointers is required by MPI to be equal on all ranks.
struct collective_call {
  op_kind kind;  ///< one of those up to the barrier
  const void* in;
  void* out;
  std::size_t count;  ///< elements: of the vector, or of one rank's block
  MPI_Datatype type;
  MPI_Op op;  ///< MPI_OP_NULL where nothing is reduced
  int root;   ///< 0 where there is none
  /// Calls of one order come one after the other, in the same order on all ranks; calls of
  /// different orders may cross. A communicator's own verbs are of order 0.
  std::uint32_t order = 0;
  /// For all_reduce and broadcast, in place of `in` and `out`; lives until the completion. Given
  /// only to a backend that has `bool takes_scattered() const noexcept` and returns true.
  scattered_data* scattered = nullptr;
};

}  // namespace cohort::comm
