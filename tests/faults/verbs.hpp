// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One call of every verb that posts something, named by the MPI function that posts it.

#include <cohort/comm/operation.hpp>

#include <functional>
#include <string>
#include <system_error>
#include <vector>

namespace faults {

/// What a handler was told.
struct outcome {
  int calls = 0;
  std::error_code error;

  /// Must not be moved or destroyed before its handler was called.
  auto handler() {
    return [this](std::error_code why, auto&&...) {
      ++calls;
      error = why;
    };
  }
};

struct verb {
  const char* posts;  ///< the MPI function
  const char* name;   ///< the verb, as it stands in reports
  /// Collective over the communicator, and complete if the others do the same.
  std::function<void(const cohort::communicator&, outcome&)> start;
  int least_ranks = 1;  ///< it posts nothing on fewer
};

[[nodiscard]] const std::vector<verb>& verbs();

/// Makes their buffers as long as this communicator, a ring, needs them.
void prepare(const cohort::communicator& ring);

}  // namespace faults
