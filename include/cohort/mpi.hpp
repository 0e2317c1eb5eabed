// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The whole layer mpi: RAII over <mpi.h>, usable without an event loop.

#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/mpi/op.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/mpi/request.hpp>
#include <cohort/mpi/shared_window.hpp>
#include <cohort/mpi/topology.hpp>
