// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests on real ranks hear of MPI_Isend, whose place loss_test.cpp takes.

#include <cohort/mpi/native.hpp>

#include <cstddef>
#include <functional>
#include <span>

namespace graph_test {

/// Called with what this rank sends, on any of its threads that does.
inline std::function<void(std::span<const std::byte> what, int to, MPI_Comm over)> on_isend;

}  // namespace graph_test
