// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Gate of the layer collectives.

#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/all_to_all.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/collectives/gather.hpp>
#include <cohort/collectives/neighbor.hpp>
#include <cohort/collectives/reduce.hpp>
#include <cohort/collectives/reduce_scatter.hpp>
#include <cohort/collectives/scan.hpp>
#include <cohort/collectives/scatter.hpp>
