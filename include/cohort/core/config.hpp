// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What cohort asks of the compiler, checked once so that a wrong flag gives one clear line.

#if defined(_MSVC_LANG)
#define COHORT_CPLUSPLUS _MSVC_LANG
#else
#define COHORT_CPLUSPLUS __cplusplus
#endif

#if COHORT_CPLUSPLUS < 202002L
#error "cohort needs C++20: compile with -std=c++20 or newer"
#endif
