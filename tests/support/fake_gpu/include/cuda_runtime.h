// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Test double, see cuda_runtime_api.h beside it.

#include <cuda_runtime_api.h>
