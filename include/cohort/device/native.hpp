// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The one place that includes CUDA's runtime API, if there is one: `COHORT_HAS_CUDA` says so.
///
/// It is defined here and not in core, so that a precompiled header without CUDA decides nothing
/// for the files that use it. Without a toolkit the headers of this layer declare nothing else. A
/// program may define it as 0 to leave the layer out.

#if !defined(COHORT_HAS_CUDA)
#if __has_include(<cuda_runtime.h>)
#define COHORT_HAS_CUDA 1
#else
#define COHORT_HAS_CUDA 0
#endif
#endif

#if COHORT_HAS_CUDA

#include <cohort/core/config.hpp>

#include <cuda_runtime_api.h>  // all that host code needs of <cuda_runtime.h>

#if CUDART_VERSION < 12000
#error "the device layer of cohort needs CUDA 12 or newer; -DCOHORT_HAS_CUDA=0 leaves it out"
#endif

#endif
