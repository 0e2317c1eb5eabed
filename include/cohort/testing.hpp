// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Gate of the layer testing: what tests of a program that uses cohort need instead of MPI.

#include <cohort/testing/manual_clock.hpp>
#include <cohort/testing/manual_source.hpp>
#include <cohort/testing/network.hpp>
