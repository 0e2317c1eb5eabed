// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What a task does: its definition, as it is spawned, hashed and sent.

#include <cohort/graph/machine/names.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace cohort::graph::machine {

/// How a task uses the value of another.
enum class use_kind : std::uint8_t {
  plain,  ///< reads it
  take,   ///< is its last reader, and gets it
  after,  ///< only runs after it
};

struct dependency {
  const task_name* task = nullptr;
  use_kind use = use_kind::plain;
};

/// The definition of a task (graph K5). All of it is copied by who keeps it.
struct definition_view {
  std::uint32_t function = 0;            ///< number in the function table
  std::uint32_t result = 0;              ///< hash of the name of the result's type
  std::span<const std::byte> arguments;  ///< encoded, as the declared parameter types
  std::span<const dependency> dependencies;
  bool travels =
      true;  ///< false: an argument has no wire format; only its home may spawn it (graph S5)
};

}  // namespace cohort::graph::machine
