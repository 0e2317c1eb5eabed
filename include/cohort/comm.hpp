// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Gate of the layer comm: communicators whose operations can be awaited.

#include <cohort/comm/argument.hpp>
#include <cohort/comm/backend.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/comm/control.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/comm/run.hpp>
