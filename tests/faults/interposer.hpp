// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file MPI functions of our own between the library and MPI: they count, and fail when told to.

// Not cohort/mpi/native.hpp: programs use it that link cohort::compiled, and others.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

namespace faults {

/// Forgets counts and what was asked for.
void reset();

/// After `skip` more calls the next call of `function` returns `error` and MPI is not called.
void fail_next(const std::string& function, int error, long skip = 0);
/// Every call of `function` returns `error` until reset().
void fail_always(const std::string& function, int error);
/// Whether the call that was asked for has failed.
[[nodiscard]] bool failed_as_asked(const std::string& function);

/// The functions of the list that post an operation and return its request.
[[nodiscard]] std::vector<std::string> posting_functions();

[[nodiscard]] long calls(const std::string& function);

using testsome_function = std::function<int(int, MPI_Request*, int*, int*, MPI_Status*)>;
/// Calls `function` in place of MPI_Testsome, and of MPI_Test, until reset().
void replace_testsome(testsome_function function);

/// Calls `function` with what the next MPI_Iallgather is given to send, before MPI is called.
void alter_sent(std::function<void(void*)> function);

}  // namespace faults
