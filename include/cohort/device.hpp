// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Gate of the layer device: CUDA streams, memory, copies, and awaiting them. Declares nothing but
/// COHORT_HAS_CUDA, which is 0 then, where there is no <cuda_runtime.h>.

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
#include <cohort/device/state.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/device/vector.hpp>
