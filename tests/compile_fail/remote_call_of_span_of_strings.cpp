// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: a remote function takes spans of trivially copyable elements: take std::vector
#include <cohort/cluster/function.hpp>
#include <string>
#include <vector>

int count(std::span<const std::string> names);

std::vector<std::byte> wrong(const std::vector<std::string>& names) {
  return cohort::cluster::encode_arguments<&count>(names);
}
