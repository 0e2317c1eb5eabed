// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What a rank waits for, and what the homes of these tasks say (graph Q1).

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::graph::machine {

/// A task whose value this rank waits for.
struct stalled_task {
  std::string task;
  int home = -1;
  std::string state;                 ///< "not spawned", "waits", "is ready", "runs", "done",
                                     ///< "taken", or "unknown": its home is silent
  std::vector<int> declarers;        ///< ranks that are known to have spawned it
  std::vector<std::string> missing;  ///< the dependencies that it waits for
  std::uint64_t age = 0;             ///< since its home heard of it, in the unit of `set_time`
};

struct stall_report {
  std::vector<stalled_task> tasks;
  std::vector<int> silent;  ///< homes that have not answered
};

}  // namespace cohort::graph::machine
