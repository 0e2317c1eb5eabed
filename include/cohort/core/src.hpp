// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the layer core, for one file of a program: see core/config.hpp.

#ifndef COHORT_SEPARATE_COMPILATION
#error \
    "a file that includes a src.hpp is compiled with COHORT_SEPARATE_COMPILATION, like all others"
#endif

#include <cohort/core.hpp>
#include <cohort/core/detail/function_table.ipp>
#include <cohort/core/detail/process.ipp>
#include <cohort/core/function_table.hpp>

namespace cohort {

template const function_table& function_table::instance<void>();
template std::string first_difference<void>(std::span<const function_table::entry>,
                                            std::span<const function_table::entry>,
                                            std::string_view, std::string_view);
template const std::string& program_id<void>();
template code_place place_of<void>(any_function);

}  // namespace cohort
