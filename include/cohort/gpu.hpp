// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What needs a GPU: the layers device, nccl and staging. Each declares nothing where its library
/// is not.

#include <cohort/device.hpp>
#include <cohort/nccl.hpp>
#include <cohort/staging.hpp>
