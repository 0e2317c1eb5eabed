// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the two source files of the test of the hash share.

#include <cohort/graph/task_hash.hpp>

namespace hash_test {

template <int Factor>
int scaled(int value) {
  return Factor * value;
}

/// A function whose name has a lambda in it.
template <auto Function>
int through(int value) {
  return Function(value);
}

/// Of the other file's static function `same_name`, and of `scaled<2>` as that file sees it.
cohort::graph::function_identity other_same_name();
cohort::graph::function_identity other_same_name(const cohort::graph::function_version& version);
cohort::graph::function_identity other_scaled(const cohort::graph::function_version& version);

}  // namespace hash_test
