// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: a remote function cannot return a view, a reference or a pointer
#include <cohort/cluster/function.hpp>
#include <string_view>

std::string_view name_of(int number);

std::size_t wrong() { return cohort::cluster::remote<&name_of>::index(); }
