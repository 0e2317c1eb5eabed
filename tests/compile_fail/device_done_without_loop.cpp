// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: no loop is known that could poll
#include <cohort/device/completion.hpp>
#include <cohort/progress/future.hpp>

void wrong(const cohort::device::stream& on) {
  auto future = cohort::device::done(on, cohort::as_future);
}
