// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What tasks are called: keys, and the names that people read.

#include <cohort/core/config.hpp>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace cohort::graph::machine {

/// 128 bits of a hash.
struct digest128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const digest128&, const digest128&) = default;
};

/// 256 bits that the caller gives a value, and that travel with it (graph U4).
using value_hash = std::array<std::byte, 32>;

/// A task, and the value that it makes. 96 bits of the hash of scope, family and indices, then the
/// home (graph K1).
struct key {
  std::uint64_t low = 0;
  std::uint32_t high = 0;
  std::int32_t home = -1;  ///< the rank that decides about it, runs it and keeps its value
  friend bool operator==(const key&, const key&) = default;
  friend auto operator<=>(const key&, const key&) = default;
};

/// So many integers name a task of a family at most.
inline constexpr std::size_t most_indices = 6;

/// A task as it was named here: a family of this scope, by its number on this rank, and indices.
struct task_name {
  key what;
  std::uint32_t family = 0;
  std::uint32_t count = 0;  ///< of indices
  std::array<std::int64_t, most_indices> indices{};
};

/// Where a task was spawned. `file` has static storage.
struct spawn_site {
  const char* file = nullptr;
  std::uint32_t line = 0;
};

/// A scope: the name that its program gives it, and which opening of that name it is (graph O1).
struct scope_id {
  std::uint64_t name = 0;  ///< hash of the text
  std::uint64_t opening = 0;
  friend bool operator==(const scope_id&, const scope_id&) = default;
  friend auto operator<=>(const scope_id&, const scope_id&) = default;
};

/// What all ranks must say alike of a family wherever they name one of its tasks (graph K3).
struct family_facts {
  std::string name;
  std::string placement;  ///< a text that is equal for equal placements: "block_cyclic(2, 2)"
  std::string function;   ///< name of the function in the program; empty: sources only
  std::string result;     ///< name of the type of the value
  friend bool operator==(const family_facts&, const family_facts&) = default;
};

}  // namespace cohort::graph::machine

template <>
struct std::hash<cohort::graph::machine::key> {
  std::size_t operator()(const cohort::graph::machine::key& k) const noexcept {
    return static_cast<std::size_t>(k.low);
  }
};
