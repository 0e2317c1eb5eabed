// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Gate of the layer staging: device memory in MPI's verbs. Declares nothing where there is no
/// <cuda_runtime.h>.

#include <cohort/staging/collectives.hpp>
#include <cohort/staging/inspection.hpp>
#include <cohort/staging/operation.hpp>
#include <cohort/staging/point_to_point.hpp>
#include <cohort/staging/staged_range.hpp>
#include <cohort/staging/transfer.hpp>
#include <cohort/staging/transfer_source.hpp>
