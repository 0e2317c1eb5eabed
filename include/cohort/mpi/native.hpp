// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The one place that includes <mpi.h>, without the C++ bindings that MPI has removed.

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif

#include <cohort/core/config.hpp>

#include <mpi.h>

#if MPI_VERSION < 3 || (MPI_VERSION == 3 && MPI_SUBVERSION < 1)
#error "cohort needs MPI 3.1 or newer"
#endif

#if defined(OPEN_MPI)
COHORT_MUST_BE_SAME(mpi, "open_mpi");
#elif defined(MPICH_VERSION) || defined(MPICH_NAME)
COHORT_MUST_BE_SAME(mpi, "mpich");
#endif

namespace cohort::mpi {

/// Whether this MPI library has the functions with 64-bit counts (their names end in _c).
inline constexpr bool has_large_counts = MPI_VERSION >= 4;

}  // namespace cohort::mpi
