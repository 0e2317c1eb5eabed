// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the layer progress, for one file of a program: see core/config.hpp.

#ifndef COHORT_SEPARATE_COMPILATION
#error \
    "a file that includes a src.hpp is compiled with COHORT_SEPARATE_COMPILATION, like all others"
#endif

#include <cohort/progress.hpp>
#include <cohort/progress/doorbell.ipp>
#include <cohort/progress/engine.ipp>
#include <cohort/progress/engine/parts.ipp>

namespace cohort::progress {

template engine::engine(asio::io_context&);
template engine::engine(asio::execution_context&);

}  // namespace cohort::progress
