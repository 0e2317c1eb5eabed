// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Compiled where CUDA is not: the headers declare COHORT_HAS_CUDA, COHORT_HAS_NCCL and nothing
// else.
#if __has_include(<cuda_runtime.h>)
#define COHORT_HAS_CUDA 0  // a toolkit among the system's headers: left out by the program then
#endif
#include <cohort/device.hpp>
#include <cohort/gpu.hpp>
#include <cohort/nccl.hpp>
#include <cohort/staging.hpp>

#if !defined(COHORT_HAS_CUDA)
#error "COHORT_HAS_CUDA is not declared"
#elif COHORT_HAS_CUDA || COHORT_HAS_NCCL
#error "this file is to be compiled without a CUDA toolkit"
#elif defined(COHORT_CPLUSPLUS)
#error "something was included"
#endif

// Had a header declared the namespace, or anything of that name, this would be an error.
namespace cohort {
struct device {};
struct nccl {};
struct staging {};
}  // namespace cohort
