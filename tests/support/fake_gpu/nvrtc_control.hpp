// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How a test makes the double of NVRTC fail. It is a shared library at COHORT_FAKE_NVRTC,
/// and these are to be looked up there.

extern "C" {

/// The `times` next compilations answer `code`, with that log.
void fake_nvrtc_fail(int times, int code, const char* log);
/// The log of those that do not fail.
void fake_nvrtc_warn(const char* log);
/// How many there were.
int fake_nvrtc_compiled(void);
}
