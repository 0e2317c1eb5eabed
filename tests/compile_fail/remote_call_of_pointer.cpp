// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: a remote function cannot take a pointer, it would point into another process
#include <cohort/cluster/function.hpp>
#include <vector>

double first(const double* values);

std::vector<std::byte> wrong(const std::vector<double>& values) {
  return cohort::cluster::encode_arguments<&first>(values.data());
}
