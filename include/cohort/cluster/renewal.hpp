// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The communicator that calls of all get when their old one is stuck in a collective.

#include <cohort/comm/communicator.hpp>

#include <cstdint>
#include <vector>

namespace cohort::cluster {

/// Makes a communicator of these ranks of `control`, on which there is no collective; other ranks
/// need not take part, as they may be stuck. Collective over the members, which are all on their
/// way here. Blocks until they have come.
///
/// `old`, the one that it is for, is left to MPI for good: messages of a collective that is stuck
/// may be on their way in it, and must not meet another communicator of the same number.
template <class Any = void>
[[nodiscard]] communicator renew(const communicator& old, const communicator& control,
                                 const std::vector<std::int32_t>& members, int round);

}  // namespace cohort::cluster

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/cluster/detail/renewal.ipp>
#endif
