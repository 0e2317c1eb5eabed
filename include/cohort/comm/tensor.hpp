// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One tensor of an operation that a coordinator elects, on the host or on a device.

#include <cohort/mpi/element_kernels.hpp>

#include <cstddef>
#include <cstdint>

namespace cohort::comm {

/// Where a tensor lies in memory that all ranks have.
struct arena_place {
  std::uint64_t arena = 0;  ///< its number; 0: the tensor lies elsewhere
  std::uint64_t offset = 0;
  bool padded = false;  ///< nobody uses what is behind it, up to the next multiple of 64 bytes
};

/// Contiguous, `count` elements as the operation's signature says (of a scatter and a
/// reduce_scatter: of the whole, of which `part_of_rank` is a rank's part). Those of a bundle may
/// have different elements. On a device, elements without a name that are not reduced come as
/// bytes.
struct tensor {
  /// Null: neutral elements, or nothing to read on this rank. Equal to `out` in place, and where a
  /// root sends.
  const void* in = nullptr;
  void* out = nullptr;  ///< null: what comes is not wanted here
  std::size_t count = 0;
  const mpi::element_kernels* kernels = nullptr;  ///< of what travels; null: there is no data
  MPI_Op operation = MPI_OP_NULL;                 ///< MPI's, of a reduction; null where it has none
  /// Set where `in` and `out` are of another type than what travels: this rank's own affair.
  const mpi::wire_kernels* wire = nullptr;
  arena_place place;  ///< on a device, in place; the same on all ranks if `all_bring`

  // Known when the operation is elected.
  double prescale = 1;
  double postscale = 1;
  std::int64_t divisor = 1;  ///< of an average: the ranks that it divides by
  bool all_bring = true;     ///< no rank brings neutral elements
  /// The operation is rounded to 16 bits for its way, and this is one of the types of 16 bits. Then
  /// `prescale` comes before the rounding, `postscale` and the division after the reduction, on
  /// every rank, whether or not this one has `wire`.
  bool rounded = false;

  [[nodiscard]] std::size_t size() const noexcept { return kernels->size; }
  [[nodiscard]] std::size_t bytes() const noexcept { return count * kernels->size; }
  /// Where an element lies in the memory of the caller that lies at `offset` in what travels.
  [[nodiscard]] std::size_t place_of(std::size_t offset) const noexcept {
    return wire == nullptr ? offset : offset / kernels->size * wire->size;
  }
};

}  // namespace cohort::comm
