// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Reduces vectors that lie beside each other in memory.

#include <cohort/mpi/native.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace cohort::shm {

/// Reduces `count` elements of each of `in`, in this order, into `out`, which may be one of them
/// and overlaps no other; all aligned for the type. A plain loop for the arithmetic types, f16 and
/// bf16 and sum, product, minimum and maximum; MPI_Reduce_local, vector by vector, for all else.
/// One pass over memory either way.
class reducer {
 public:
  reducer() noexcept = default;
  /// Any operation of MPI, and any type that is one block of bytes.
  reducer(MPI_Datatype type, MPI_Op operation) noexcept;
  void operator()(std::byte* out, std::span<const std::byte* const> in, std::size_t count,
                  std::vector<std::byte>& scratch) const;
  [[nodiscard]] bool is_plain() const noexcept { return plain_ != nullptr; }

 private:
  using plain_loop = void (*)(std::byte* out, const std::byte* const* in, std::size_t vectors,
                              std::size_t count);
  plain_loop plain_ = nullptr;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MPI_Op operation_ = MPI_OP_NULL;
};

/// Bytes of one element of `type`; 0 if it is not one block of bytes.
[[nodiscard]] std::size_t block_size(MPI_Datatype type) noexcept;

}  // namespace cohort::shm

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/shm/detail/reduce.ipp>
#endif
