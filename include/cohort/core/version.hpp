// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The version of the library, written by hand at every release.

namespace cohort {

inline constexpr int version_major = 0;
inline constexpr int version_minor = 1;
inline constexpr int version_patch = 0;

/// The version as text, "major.minor.patch".
inline constexpr const char* version_string = "0.1.0";

}  // namespace cohort
