// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Gate of the layer nccl: NCCL's collectives on CUDA streams, awaited. Declares nothing but
/// COHORT_HAS_NCCL, which is 0 then, where there is no <cuda_runtime.h> or no <nccl.h>.

#include <cohort/nccl/arena.hpp>
#include <cohort/nccl/backend.hpp>
#include <cohort/nccl/backend_options.hpp>
#include <cohort/nccl/collectives.hpp>
#include <cohort/nccl/communicator.hpp>
#include <cohort/nccl/datatype.hpp>
#include <cohort/nccl/device_plane.hpp>
#include <cohort/nccl/error.hpp>
#include <cohort/nccl/fault_message.hpp>
#include <cohort/nccl/fusion_arena.hpp>
#include <cohort/nccl/fusion_memory.hpp>
#include <cohort/nccl/group.hpp>
#include <cohort/nccl/inquiry.hpp>
#include <cohort/nccl/native.hpp>
#include <cohort/nccl/operation.hpp>
#include <cohort/nccl/operator.hpp>
#include <cohort/nccl/point_to_point.hpp>
#include <cohort/nccl/set_group.hpp>
#include <cohort/nccl/source.hpp>
#include <cohort/nccl/state.hpp>
#include <cohort/nccl/work.hpp>
#include <cohort/nccl/work_set.hpp>
