// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// CUDA's own number types as elements of buffers. Its headers need not be included to know their
/// names.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/element.hpp>

struct __half;         // NOLINT
struct __nv_bfloat16;  // NOLINT
struct __nv_fp8_e4m3;  // NOLINT
struct __nv_fp8_e5m2;  // NOLINT

namespace cohort {

template <>
struct element_traits<__half> {
  using as = f16;
};
template <>
struct element_traits<__nv_bfloat16> {
  using as = bf16;
};
// No element type has 8 bits: these are moved, and reduced by the direct verbs of `nccl` alone.
template <>
struct element_traits<__nv_fp8_e4m3> {
  using as = opaque;
};
template <>
struct element_traits<__nv_fp8_e5m2> {
  using as = opaque;
};

}  // namespace cohort

#endif
