// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What every collective needs of a call. This room has the bodies of the collectives: the
/// arguments of a verb enter, and what leaves is an operation for `comm::initiate`.

#include <cohort/comm/body.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/core/buffer.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::collectives::detail {

/// Rank, size and root as a body remembers them. `root` is 0 for collectives without one.
struct place {
  int rank = 0;
  int ranks = 1;
  int root = 0;

  [[nodiscard]] constexpr bool is_root() const noexcept { return rank == root; }
  [[nodiscard]] constexpr bool good_root() const noexcept { return root >= 0 && root < ranks; }
  [[nodiscard]] constexpr std::size_t blocks() const noexcept {
    return static_cast<std::size_t>(ranks);
  }
  [[nodiscard]] constexpr std::size_t index() const noexcept {
    return static_cast<std::size_t>(rank);
  }
};

/// A root may be any integer; what is no int is no rank.
template <std::integral Root>
[[nodiscard]] constexpr int to_rank(Root root) noexcept {
  if constexpr (std::same_as<Root, int>) {
    return root;
  } else if constexpr (sizeof(Root) < sizeof(int)) {
    return root;
  } else {
    return std::in_range<int>(root) ? static_cast<int>(root) : -1;
  }
}

/// An empty handle has one rank: its operations fail before anybody asks.
[[nodiscard]] inline place place_in(const communicator& comm, int root = 0) noexcept {
  if (comm.state() == nullptr) return {0, 1, root};
  return {comm.rank(), comm.size(), root};
}

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

// ---- the words for a wrong call ---------------------------------------------------------------

template <class...>
inline constexpr bool never = false;

/// Stands for an argument that was not given.
struct missing {};

template <std::size_t Index, class... Arguments>
using argument_at = std::tuple_element_t<Index, std::tuple<Arguments&&..., missing&&, missing&&>>;

using comm::any_buffer;

template <class Argument>
struct element_of_any {
  using type = void;
};
template <any_buffer Argument>
struct element_of_any<Argument> {
  using type = element_of_t<std::remove_reference_t<Argument>&>;
};
template <class Argument>
using element_if_buffer = typename element_of_any<Argument>::type;

/// Whether a verb has a root.
enum class has_root : bool { no, yes };

}  // namespace cohort::collectives::detail
