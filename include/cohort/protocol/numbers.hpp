// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The numbers by which a rank speaks of names, signatures and submissions.

#include <cstdint>

namespace cohort::protocol {

/// The number of a submission of a name: the n-th on one rank is matched with the n-th on every
/// other. Negative where a new generation has renumbered what lies behind.
using epoch = std::int64_t;

/// Numbers of this rank alone: of a name in a set, of a name with a signature, of a record.
using name_index = std::uint32_t;
using entry_index = std::uint32_t;
using record_index = std::uint32_t;

/// Index that stands for "none".
inline constexpr std::uint32_t none = UINT32_MAX;

}  // namespace cohort::protocol
