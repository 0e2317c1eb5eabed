// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The whole layer core, which needs nothing but the standard library. core/asio.hpp is the
/// one header of it that needs Asio, so it is left out here; so is what only some programs need:
/// category, function_table, hmac, wire_std, wire_cereal.

#include <cohort/core/buffer.hpp>
#include <cohort/core/config.hpp>
#include <cohort/core/element.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/process.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/core/reduction.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/tool_range.hpp>
#include <cohort/core/wire.hpp>
