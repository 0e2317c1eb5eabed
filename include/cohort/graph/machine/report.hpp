// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// How a window ends, and what is told of it.

#include <cohort/graph/machine/content.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cohort::graph::machine {

enum class window_end : std::uint8_t { again, fence, close };

/// One divergence, found by a home, by a spawner or by the root of the wave.
struct divergence {
  std::string task;  ///< or the family, or "options of the scope"
  std::string text;  ///< the field, the ranks on each side and both sites or values
  friend bool operator==(const divergence&, const divergence&) = default;
};

/// How a window has ended; equal on all ranks, but for `closed` (graph P8, T8).
struct window_report {
  std::uint64_t failed = 0;              ///< tasks
  std::optional<failure> first_failure;  ///< of the smallest key
  std::vector<divergence> divergences;   ///< sorted
  std::vector<divergence> refused;       ///< spawns and puts without effect (graph S5); sorted
  bool closed = false;               ///< others have closed or fenced, this rank had asked for less
  std::optional<failure> cancelled;  ///< the cause, where the scope is
};

}  // namespace cohort::graph::machine
