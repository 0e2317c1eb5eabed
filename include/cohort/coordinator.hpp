// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Gate of the layer coordinator: named collectives in any order, negotiated, fused, cached.

#include <cohort/coordinator/bundle.hpp>
#include <cohort/coordinator/coordinator.hpp>
#include <cohort/coordinator/options_text.hpp>
#include <cohort/coordinator/persistent_group.hpp>
#include <cohort/coordinator/plan.hpp>
#include <cohort/coordinator/process_set.hpp>
#include <cohort/coordinator/tune.hpp>
