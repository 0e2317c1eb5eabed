// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer nccl: collectives of NCCL in the order of CUDA's streams, awaited, and a backend that
/// lets a coordinator use them. Declares nothing but COHORT_HAS_NCCL, which is 0 then, where there
/// is no <cuda_runtime.h> or no <nccl.h>.
///
///     auto gpus = co_await cohort::nccl::make_communicator(world);  // one device for each rank
///     cohort::device::stream compute;
///     cohort::device::vector<float> g(1 << 20, compute);
///     backward(g.data(), compute.get());                            // your kernels: queued
///     co_await cohort::nccl::all_reduce(gpus, compute, g, cohort::op::average);
///
///     cohort::coordinator coord(world, cohort::nccl::backend());    // by name, in any order
///     co_await coord.all_reduce("layer1/w", g, cohort::op::average);

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
