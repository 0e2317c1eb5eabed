// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A library that function_table_test.cpp loads when the table has long been made.

#include <cohort/core/function_table.hpp>

static int late(int value) { return value; }

/// 0 if the function has no number in that table, as must be; 1 if it has one, 2 for another error.
extern "C" int cohort_test_late_number(const cohort::function_table& table) {
  try {
    static_cast<void>(cohort::registered<&late>::index(table));
    return 1;
  } catch (const cohort::error& problem) {
    return problem.code() == cohort::errc::invalid_argument ? 0 : 2;
  }
}
