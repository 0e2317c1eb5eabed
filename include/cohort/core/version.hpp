// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The version of the library.

#include <cohort/core/config.hpp>

namespace cohort {

inline constexpr int version_major = COHORT_VERSION_MAJOR;
inline constexpr int version_minor = COHORT_VERSION_MINOR;
inline constexpr int version_patch = COHORT_VERSION_PATCH;

/// The version as text, "major.minor.patch".
inline constexpr const char* version_string = COHORT_TEXT(COHORT_VERSION_MAJOR) "." COHORT_TEXT(
    COHORT_VERSION_MINOR) "." COHORT_TEXT(COHORT_VERSION_PATCH);

}  // namespace cohort
