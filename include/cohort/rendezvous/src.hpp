// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the layer rendezvous, for one file of a program: see core/config.hpp.

#ifndef COHORT_SEPARATE_COMPILATION
#error \
    "a file that includes a src.hpp is compiled with COHORT_SEPARATE_COMPILATION, like all others"
#endif

#include <cohort/rendezvous.hpp>
#include <cohort/rendezvous/exchange/exchange.hpp>

namespace cohort::meeting {

template class basic_node<>;
template class exchange<void>;
template handle_ptr open_endpoint<void>(progress::engine&, const rendezvous_options&,
                                        const communicator&);

}  // namespace cohort::meeting
