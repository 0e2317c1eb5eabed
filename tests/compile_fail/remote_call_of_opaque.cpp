// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: this type cannot travel
#include <cohort/cluster/function.hpp>
#include <vector>

struct opaque {
  explicit opaque(int);
  int value;
};
int take(const opaque& one);

std::vector<std::byte> wrong(const opaque& one) {
  return cohort::cluster::encode_arguments<&take>(one);
}
