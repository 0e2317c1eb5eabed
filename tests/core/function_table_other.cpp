// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Functions with the names of those in function_table_test.cpp.

#include "core/function_table_support.hpp"

using cohort::registered;

static int same_name(int value) { return value + 2; }

namespace {

int same_anonymous(int value) { return value + 20; }

}  // namespace

namespace table_test {

std::size_t other_static() { return registered<&same_name>::index(); }
std::size_t other_anonymous() { return registered<&same_anonymous>::index(); }
std::size_t other_twice() { return registered<&twice<int>>::index(); }
std::size_t other_lambda() {
  return registered<&through<[](int value) { return value + 200; }>>::index();
}

}  // namespace table_test
