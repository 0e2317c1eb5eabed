// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The one place that includes NCCL, if there is one: `COHORT_HAS_NCCL` says so.
///
/// Without CUDA or without <nccl.h> the headers of this layer declare nothing else. A program may
/// define it as 0 to leave the layer out.

#include <cohort/device/native.hpp>

#if !defined(COHORT_HAS_NCCL)
#if COHORT_HAS_CUDA && __has_include(<nccl.h>)
#define COHORT_HAS_NCCL 1
#else
#define COHORT_HAS_NCCL 0
#endif
#endif

#if COHORT_HAS_NCCL

#include <nccl.h>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 1)
#error "the nccl layer of cohort needs NCCL 2.18 or newer; -DCOHORT_HAS_NCCL=0 leaves it out"
#endif

namespace cohort::nccl {

/// The version of the library that is loaded, as `NCCL_VERSION_CODE` numbers them (22809), or 0 if
/// it does not say.
[[nodiscard]] inline int library_version() noexcept {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

}  // namespace cohort::nccl

#endif
