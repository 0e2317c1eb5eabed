// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Elements of a strided view side by side, for as long as MPI works on them.

#include <cohort/core/buffer.hpp>

#include <memory>
#include <type_traits>

namespace cohort::collectives::detail {

/// Elements where MPI can work on them: the caller's, or a packed copy of a strided view. Needed
/// where MPI allows no derived types (reductions) or where all ranks must give the same count.
template <class T>
class packed {
 public:
  /// For elements that MPI reads. Packs once.
  T* in(buffer_view<T> view) {
    if (view.contiguous()) [[likely]]
      return view.data;
    if (!copy_) {
      copy_ = std::make_unique_for_overwrite<std::remove_const_t<T>[]>(view.count);
      pack(view, copy_.get());
    }
    return copy_.get();
  }
  /// For elements that MPI only writes.
  T* out(buffer_view<T> view) {
    if (view.contiguous()) [[likely]]
      return view.data;
    if (!copy_) copy_ = std::make_unique_for_overwrite<T[]>(view.count);
    return copy_.get();
  }
  /// Whether there is a copy, so that MPI must use it.
  [[nodiscard]] bool made() const noexcept { return copy_ != nullptr; }
  /// Brings the result back to where the caller wants it.
  void finish(buffer_view<T> view) {
    if (copy_) unpack(static_cast<const T*>(copy_.get()), view);
  }

 private:
  std::unique_ptr<std::remove_const_t<T>[]> copy_;
};

}  // namespace cohort::collectives::detail
