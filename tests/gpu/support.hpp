// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of the coordinator on devices share.

#include <cohort/coordinator.hpp>
#include <cohort/nccl/backend.hpp>

#include "nccl/support.hpp"
#include "support/caught.hpp"
