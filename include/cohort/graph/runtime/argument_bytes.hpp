// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What stands in the bytes of the arguments of a task.
///
/// For each parameter of the function they say how it is filled: with a value, which follows; with
/// the next dependency; or with so many of them. Those of a cached family begin with its version,
/// so that the home of a task knows it too, if it has never named the family; and ranks that do not
/// give the same one diverge (graph D2).

#include <cohort/core/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cohort::graph::runtime {

// Who changes this changes the hashes of tasks, and `task_domain` in graph/task_hash.ipp with them.
enum class filled_by : std::uint8_t {
  value,  ///< its bytes follow
  task,   ///< the next dependency
  tasks   ///< a number follows: of the next dependencies
};

/// In front of all that: the version of a cached family follows, a text, which is empty for that of
/// the build.
inline constexpr std::uint8_t version_follows = 3;

/// What the arguments of a cached family begin with.
template <class Any = void>
[[nodiscard]] std::vector<std::byte> cached_beginning(const std::string& version) {
  std::vector<std::byte> bytes;
  wire::writer out(bytes);
  out.byte(version_follows);
  out.text(version);
  return bytes;
}

/// The arguments of a task, and whether and how its family is cached.
struct argument_bytes {
  explicit argument_bytes(std::span<const std::byte> all) : values(all) {
    if (all.empty() || all[0] != std::byte{version_follows}) return;
    wire::reader in(all.subspan(1));
    version = in.text();
    if (!in.ok()) return;  // no such thing was spawned
    is_cached = true;
    values = all.last(in.left());
  }
  std::span<const std::byte> values;  ///< without the version
  std::string version;
  bool is_cached = false;
};

}  // namespace cohort::graph::runtime
