// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Buffers as MPI wants them: address, count and datatype, whatever their size and their
/// gaps; and where the blocks of the ranks lie in one, 64-bit with every MPI.

#include <cohort/core/buffer.hpp>
#include <cohort/core/error.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/native.hpp>

#include <climits>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::mpi {

/// The largest count that the functions of MPI without _c take.
inline constexpr std::size_t max_int_count = INT_MAX;

/// Whether a layout may have a count above max_int_count, for the functions whose names end in _c.
/// With `fold`, or where MPI has no such functions, large data is one element of a derived type.
/// Predefined reductions do not work on derived types, so large reductions are cut into parts.
enum class large_count { keep, fold };

/// Address, count and datatype of a buffer. A contiguous buffer costs no call into MPI. A strided
/// or folded one creates a datatype and frees it in the destructor; MPI lets operations that have
/// been posted before that finish.
class layout {
 public:
  /// Throws what MPI reports when it cannot create a datatype; needs MPI to be running then.
  template <class T>
  explicit layout(buffer_view<T> view, large_count policy = large_count::keep);

  /// The address; MPI's send functions read from it only.
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] MPI_Count count() const noexcept { return count_; }
  /// The count as int; call it only if fits_int().
  [[nodiscard]] int int_count() const noexcept { return static_cast<int>(count_); }
  [[nodiscard]] bool fits_int() const noexcept { return count_ <= INT_MAX; }
  [[nodiscard]] MPI_Datatype type() const noexcept { return type_; }
  /// Whether the type belongs to this object: not an element's, so not one to reduce with.
  [[nodiscard]] bool derived() const noexcept { return static_cast<bool>(owned_); }
  /// Takes the derived type away, for a caller that needs it longer; type() stays valid with it.
  [[nodiscard]] datatype take_type() noexcept { return std::move(owned_); }

 private:
  void own(datatype type) noexcept;

  void* data_;
  MPI_Count count_;
  MPI_Datatype type_;
  datatype owned_;
};

template <class T>
layout::layout(buffer_view<T> view, large_count policy)
    : data_(const_cast<std::remove_const_t<T>*>(view.data)),
      count_(static_cast<MPI_Count>(view.count)),
      type_(datatype_of<std::remove_const_t<T>>()) {
  if (!view.contiguous()) [[unlikely]] {
    own(strided_type(view.block, view.stride, view.blocks(), type_));
  } else if (view.count > max_int_count && (policy == large_count::fold || !has_large_counts))
      [[unlikely]] {
    own(contiguous_type(view.count, type_));
  }
}

inline void layout::own(datatype type) noexcept {
  owned_ = std::move(type);
  type_ = owned_.native();
  count_ = 1;
}

/// Where the blocks of the ranks lie in a buffer: counts and displacements in elements. MPI reads
/// the arrays until the operation is complete, so keep the object, in one place, for as long.
///
/// Numbers that fit an int are given to the functions every MPI has. Larger ones go to the _c
/// functions, or, without these, are counted in units of a derived type of the largest block that
/// divides them all. If no unit makes them fit, the constructor throws errc::count_too_large.
class blocks {
 public:
  /// Blocks that follow each other without gaps.
  blocks(std::span<const std::size_t> counts, MPI_Datatype type);
  /// Blocks at stated places; as many displacements as counts, otherwise errc::size_mismatch.
  blocks(std::span<const std::size_t> counts, std::span<const std::size_t> displacements,
         MPI_Datatype type);

  [[nodiscard]] MPI_Datatype type() const noexcept { return type_; }
  /// Whether the numbers need the _c functions.
  [[nodiscard]] bool large() const noexcept { return !large_counts_.empty(); }
  [[nodiscard]] const int* counts() const noexcept { return counts_.data(); }
  [[nodiscard]] const int* displacements() const noexcept { return displacements_.data(); }
  /// The same numbers for the _c functions: filled if large(), or by widen().
  [[nodiscard]] const MPI_Count* large_counts() const noexcept { return large_counts_.data(); }
  [[nodiscard]] const MPI_Aint* large_displacements() const noexcept {
    return large_displacements_.data();
  }
  /// Makes large() true: both sides of an all-to-all go to the same function. Posting does it.
  void widen();
  /// Whether type() is a unit of several elements, which reductions cannot use.
  [[nodiscard]] bool folded() const noexcept { return static_cast<bool>(owned_); }

 private:
  void assign(std::span<const std::size_t> counts, std::span<const std::size_t> displacements);

  MPI_Datatype type_;
  datatype owned_;
  std::vector<int> counts_;
  std::vector<int> displacements_;
  std::vector<MPI_Count> large_counts_;
  std::vector<MPI_Aint> large_displacements_;
};

}  // namespace cohort::mpi

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/mpi/detail/layout.ipp>
#endif
