// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: an argument of the call does not convert to the function's parameter
#include <cohort/cluster/function.hpp>
#include <vector>

double half(double value);

std::vector<std::byte> wrong() { return cohort::cluster::encode_arguments<&half>("two"); }
