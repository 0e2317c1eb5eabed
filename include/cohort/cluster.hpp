// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Gate of the layer cluster: functions called in other processes of the same program.

#include <cohort/cluster/error.hpp>
#include <cohort/cluster/function.hpp>
