// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: a remote function is a function or a captureless lambda, and no template
#include <cohort/cluster/function.hpp>
#include <vector>

std::vector<std::byte> wrong() {
  return cohort::cluster::encode_arguments<[](auto value) { return value; }>(1);
}
