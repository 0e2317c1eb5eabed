// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Test double of the part of CUDA's header that tests use.

#include <cohort/core/element.hpp>

struct __half {
  __half() = default;
  __half(float value) : bits(cohort::f16(value)) {}            // NOLINT
  operator float() const { return static_cast<float>(bits); }  // NOLINT
  cohort::f16 bits;
};
