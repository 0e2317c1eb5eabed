// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What needs the doubles of CUDA and NCCL in test sources that are also built with the real
/// libraries.
///
/// There the doubles' controls are declared and not defined, so a test case that still calls them
/// does not link. Functions beside test cases that call them must be `inline`. g++ without
/// optimisation emits coroutines that nobody calls; the linker has to drop them (--gc-sections),
/// which tables of jumps in shared sections would prevent.

#include <cuda_runtime_api.h>

#include "support/catch.hpp"
#include "support/fake_gpu/control.hpp"

#include <cstdio>
#include <string>
#include <vector>

/// Where a test names the double of NVRTC: NVRTC itself, wherever it is.
#if !defined(COHORT_FAKE_NVRTC)
#define COHORT_FAKE_NVRTC ""
#endif

#if defined(COHORT_FAKE_GPU)

/// A test case that makes the doubles fail, or asks them for what no hardware tells. With the real
/// libraries it is compiled, and reported as skipped.
#define DOUBLE_TEST_CASE(...) TEST_CASE(__VA_ARGS__)

/// A CHECK of what only the doubles tell.
#define CHECK_DOUBLE(...) CHECK(__VA_ARGS__)

#else

#define DOUBLE_TEST_CASE(...) COHORT_SKIPPED_CASE_1(__COUNTER__, __VA_ARGS__)
#define COHORT_SKIPPED_CASE_1(...) COHORT_SKIPPED_CASE_2(__VA_ARGS__)
#define COHORT_SKIPPED_CASE_2(number, ...)                                                 \
  [[maybe_unused]] static const bool is_skipped_##number = cohort_test::skip(__VA_ARGS__); \
  [[maybe_unused]] static inline void skipped_case_##number()

#define CHECK_DOUBLE(...) static_cast<void>(sizeof(static_cast<bool>(__VA_ARGS__)))

namespace cohort_test {

/// The names of the test cases that were left out.
inline std::vector<std::string>& skipped_cases() {
  static std::vector<std::string> all;
  return all;
}
inline bool skip(const char* name) {
  skipped_cases().emplace_back(name);
  return true;
}

/// A line that scripts/test_gpu.sh repeats, and the names.
inline void tell_skipped(const std::vector<std::string>& names, const char* why) {
  if (names.empty()) return;
  std::printf("skipped: %zu test cases: %s\n", names.size(), why);
  for (const std::string& one : names) std::printf("  %s\n", one.c_str());
}
inline void tell_skipped() {
  tell_skipped(skipped_cases(), "they make the doubles fail, or ask them what no device tells");
}

}  // namespace cohort_test

#endif
