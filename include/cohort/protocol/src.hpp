// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the layer protocol, for one file of a program: see core/config.hpp.

#ifndef COHORT_SEPARATE_COMPILATION
#error \
    "a file that includes a src.hpp is compiled with COHORT_SEPARATE_COMPILATION, like all others"
#endif

#include <cohort/protocol.hpp>
#include <cohort/protocol/node/aggregation.ipp>
#include <cohort/protocol/node/client.ipp>
#include <cohort/protocol/node/election.ipp>
#include <cohort/protocol/node/log.ipp>
#include <cohort/protocol/node/receive.ipp>
#include <cohort/protocol/node/stall.ipp>

namespace cohort::protocol {

template class basic_node<>;

}  // namespace cohort::protocol
