// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What a rank waits for, and what the homes of these tasks say (graph Q1).

#include <algorithm>
#include <cstddef>
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

/// "g(2) of rank 1 waits for f(1); h(0) of rank 0 runs"; of many, the first.
[[nodiscard]] inline std::string text_of(const stall_report& told) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(told.tasks.size(), most); ++i) {
    const stalled_task& one = told.tasks[i];
    text += (i == 0 ? "" : "; ") + one.task + " of rank " + std::to_string(one.home) + " ";
    text += one.state == "unknown" ? "is silent" : one.state;
    for (std::size_t j = 0; j < one.missing.size(); ++j) {
      text += (j == 0 ? " for " : ", ") + one.missing[j];
    }
  }
  if (told.tasks.size() > most) {
    text += "; and " + std::to_string(told.tasks.size() - most) + " more";
  }
  return text;
}

}  // namespace cohort::graph::machine
