// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A function with the name of one in hash_test.cpp.

#include "graph/hash_support.hpp"

using cohort::graph::function_identity;

static int same_name(int value) { return value + 2; }

namespace hash_test {

function_identity other_same_name() { return function_identity::of<&same_name>(); }
function_identity other_same_name(const cohort::graph::function_version& version) {
  return function_identity::of<&same_name>(version);
}
function_identity other_scaled(const cohort::graph::function_version& version) {
  return function_identity::of<&scaled<2>>(version);
}

}  // namespace hash_test
