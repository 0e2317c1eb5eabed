// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: the call has not as many arguments as the remote function has parameters
#include <cohort/cluster/function.hpp>
#include <vector>

double power(double base, int exponent);

std::vector<std::byte> wrong() { return cohort::cluster::encode_arguments<&power>(2.0); }
