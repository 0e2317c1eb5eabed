// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What needs a GPU, besides `cohort/cohort.hpp`: streams and memory (device), collectives of NCCL
/// (nccl), and device memory in verbs of MPI (staging). Each declares nothing where its library is
/// not. Three ways for one gradient in device memory:
///
///     co_await cohort::nccl::all_reduce(gpus, compute, gradient, cohort::op::sum);  // NCCL
///     co_await coord.all_reduce("gradient", gradient, cohort::op::sum);  // NCCL, in any order
///     co_await cohort::all_reduce(world, gradient, cohort::op::sum);     // MPI, staged

#include <cohort/device.hpp>
#include <cohort/nccl.hpp>
#include <cohort/staging.hpp>
