// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the layer mpi, for one file of a program: see core/config.hpp.

#ifndef COHORT_SEPARATE_COMPILATION
#error \
    "a file that includes a src.hpp is compiled with COHORT_SEPARATE_COMPILATION, like all others"
#endif

#include <cohort/mpi.hpp>
#include <cohort/mpi/detail/environment.ipp>
#include <cohort/mpi/detail/layout.ipp>
#include <cohort/mpi/detail/topology.ipp>
