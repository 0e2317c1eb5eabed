// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer core: the words of all others (buffers, elements, reductions, ranks, errors), with
/// nothing but the standard library.
///
/// \code
/// std::vector<double> matrix(20 * 30);
/// cohort::strided_view column(&matrix[4], /*blocks*/ 20, /*block*/ 1, /*stride*/ 30);
/// static_assert(cohort::reduction_for<cohort::op::sum_t, double>);  // not for bool
///
/// const auto even = cohort::ranks::stride(0, world.size(), 2);         // in an order
/// const cohort::rank_set late{0, 1, 2, 7};                             // as ranges: "0-2, 7"
/// const auto bytes = cohort::wire::encode(std::vector<int>{1, 2, 3});  // an object, as it travels
/// const auto values = cohort::wire::decode<std::vector<int>>(bytes);
/// if (values.empty()) throw cohort::error(cohort::errc::closed, "missing: ranks " + late.str());
/// \endcode
///
/// core/asio.hpp is the one header that needs Asio, so it is left out here; so is what only some
/// programs need: crypto, devices, exception, flatten, function_table, json_text, trace_file,
/// type_name, wire_std, wire_cereal.

#include <cohort/core/buffer.hpp>
#include <cohort/core/config.hpp>
#include <cohort/core/element.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/option_errors.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/process.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/core/reduction.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/tool_range.hpp>
#include <cohort/core/wire.hpp>
