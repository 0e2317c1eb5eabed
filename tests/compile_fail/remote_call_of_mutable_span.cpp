// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: a remote function cannot change the caller's elements: take std::span<const T>
#include <cohort/cluster/function.hpp>
#include <vector>

void double_all(std::span<double> values);

std::vector<std::byte> wrong(std::vector<double>& values) {
  return cohort::cluster::encode_arguments<&double_all>(values);
}
