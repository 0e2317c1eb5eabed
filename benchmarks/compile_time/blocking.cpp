// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A file that takes a communicator and blocks.

#include <cohort/blocking.hpp>

#include <vector>

double sum_of(const cohort::communicator& world, std::vector<double>& x) {
  cohort::all_reduce(world, x, cohort::op::sum, cohort::blocking);
  return x[0];
}
