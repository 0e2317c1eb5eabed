// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the layer coordinator, for one file of a program: see core/config.hpp.

#ifndef COHORT_SEPARATE_COMPILATION
#error \
    "a file that includes a src.hpp is compiled with COHORT_SEPARATE_COMPILATION, like all others"
#endif

#include <cohort/coordinator.hpp>
#include <cohort/coordinator/detail/options_text.ipp>
#include <cohort/coordinator/log/negotiation.hpp>
#include <cohort/coordinator/timeline/timeline.ipp>

namespace cohort::coordination {

template class basic_lane<void>;
template class basic_execution<void>;
template class basic_data_plane<void>;
template class set_view<void>;
template class negotiation<void>;
template std::shared_ptr<instance> open_instance(const communicator&, const coordinator_options&,
                                                 std::shared_ptr<comm::any_backend>,
                                                 std::shared_ptr<comm::device_backend>);

}  // namespace cohort::coordination
