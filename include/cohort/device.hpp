// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer device: streams of CUDA, memory, copies, and awaiting them. Declares nothing but
/// COHORT_HAS_CUDA, which is 0 then, where there is no <cuda_runtime.h>.
///
///     cohort::device::stream compute;                            // on the default device
///     cohort::device::vector<float> gradient(1 << 20, compute);  // lives in the stream's order
///     cohort::device::pinned_vector<float> host(1 << 20, compute);
///     backward(gradient.data(), compute.get());        // your kernels
///     cohort::device::copy(compute, gradient, host);   // queued, not waited for
///     co_await cohort::device::done(compute);          // other coroutines run meanwhile
///     co_await cohort::all_reduce(world, host, cohort::op::sum);

#include <cohort/device/completion.hpp>
#include <cohort/device/copy.hpp>
#include <cohort/device/device.hpp>
#include <cohort/device/error.hpp>
#include <cohort/device/make_pinned.hpp>
#include <cohort/device/memory.hpp>
#include <cohort/device/native.hpp>
#include <cohort/device/nvtx.hpp>
#include <cohort/device/pinned_vector.hpp>
#include <cohort/device/span.hpp>
#include <cohort/device/staged_copy.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/device/vector.hpp>
