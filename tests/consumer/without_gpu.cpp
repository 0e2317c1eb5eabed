// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A file of a user's program that is built without CUDA: the header may be included all the same.
#include <cohort/gpu.hpp>

#if !__has_include(<cuda_runtime.h>)
static_assert(COHORT_HAS_CUDA == 0 && COHORT_HAS_NCCL == 0);
#endif

[[maybe_unused]] static const bool has_devices = COHORT_HAS_CUDA != 0;
