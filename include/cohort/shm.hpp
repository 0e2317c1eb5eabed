// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Gate of the layer shm.

#include <cohort/shm/backend.hpp>
#include <cohort/shm/memory.hpp>
