// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Test double of the part of CUDA's header that tests use.

#include <cohort/core/element.hpp>

struct __nv_bfloat16 {
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) : bits(cohort::bf16(value)) {}    // NOLINT
  operator float() const { return static_cast<float>(bits); }  // NOLINT
  cohort::bf16 bits;
};
