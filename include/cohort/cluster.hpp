// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Gate of the layer cluster: workers that are launched, and functions called on them.

#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/error.hpp>
#include <cohort/cluster/function.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/run.hpp>
#include <cohort/cluster/serve.hpp>
#include <cohort/cluster/sinks.hpp>
#include <cohort/cluster/workers.hpp>
#include <cohort/progress/rethrow.hpp>
