// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the layer collectives, for one file of a program: see core/config.hpp.

#ifndef COHORT_SEPARATE_COMPILATION
#error \
    "a file that includes a src.hpp is compiled with COHORT_SEPARATE_COMPILATION, like all others"
#endif

#include <cohort/collectives.hpp>
#include <cohort/collectives/bodies/instances.hpp>

namespace cohort::comm::detail {

COHORT_INSTANCES(template)

}  // namespace cohort::comm::detail
