// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Gate of the layer nccl: NCCL's collectives on CUDA streams, awaited. Declares nothing but
/// COHORT_HAS_NCCL, which is 0 then, where there is no <cuda_runtime.h> or no <nccl.h>.

#include <cohort/nccl/backend.hpp>
#include <cohort/nccl/collectives.hpp>
#include <cohort/nccl/communicator.hpp>
#include <cohort/nccl/extra/arena.hpp>
#include <cohort/nccl/extra/fusion_arena.hpp>
#include <cohort/nccl/groups.hpp>
#include <cohort/nccl/native.hpp>
#include <cohort/nccl/operation.hpp>
#include <cohort/nccl/point_to_point.hpp>
#include <cohort/nccl/types.hpp>
