// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: a remote function cannot take T&, it would change a copy: return the new value
#include <cohort/cluster/function.hpp>
#include <vector>

void double_it(std::vector<double>& values);

std::vector<std::byte> wrong(std::vector<double>& values) {
  return cohort::cluster::encode_arguments<&double_it>(values);
}
