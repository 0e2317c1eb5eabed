// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Where a rank stands in a collective: itself, how many there are, and the root.

#include <cohort/comm/communicator.hpp>

#include <concepts>
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

}  // namespace cohort::collectives::detail
