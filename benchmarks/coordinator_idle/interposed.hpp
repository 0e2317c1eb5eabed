// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What this program sees of its own calls of MPI, through MPI's profiling interface.

#include <cstdint>

namespace interposed {

/// Calls that send a message, or start a collective operation, since the program began.
[[nodiscard]] std::uint64_t messages();
[[nodiscard]] std::uint64_t collectives();

/// Notes when MPI_Test or MPI_Testsome next finds a request complete.
void watch();
/// When that was, in nanoseconds of the steady clock; 0: not yet.
[[nodiscard]] double seen();

}  // namespace interposed
