// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the two source files of the test of the function table share.

#include <cohort/core/function_table.hpp>

#include <cstddef>

namespace table_test {

template <class T>
T twice(T value) {
  return value + value;
}

/// Code between a call and its function, as the cluster manager has it: a lambda is no pointer.
template <auto Function>
int through(int value) {
  return Function(value);
}

/// Calls the function with this number; all of this test are int(int).
inline int run(std::size_t index, int argument) {
  return cohort::function_table::instance().at<int(int)>(index)(argument);
}

/// What the other file finds for its own functions, which are named as here.
std::size_t other_static();
std::size_t other_anonymous();
std::size_t other_twice();
std::size_t other_lambda();

}  // namespace table_test
