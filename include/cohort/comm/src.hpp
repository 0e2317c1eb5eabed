// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the layer comm, for one file of a program: see core/config.hpp.

#ifndef COHORT_SEPARATE_COMPILATION
#error \
    "a file that includes a src.hpp is compiled with COHORT_SEPARATE_COMPILATION, like all others"
#endif

#include <cohort/comm.hpp>
#include <cohort/comm/channel.ipp>
#include <cohort/comm/creation.ipp>
#include <cohort/comm/detail/backend_opening.ipp>
#include <cohort/comm/detail/communicator_state.ipp>
#include <cohort/comm/mailbox.ipp>
#include <cohort/comm/requests/blocking_call.ipp>
#include <cohort/comm/requests/body_operation.ipp>
#include <cohort/comm/requests/list.ipp>
#include <cohort/comm/requests/source.ipp>

namespace cohort {

template communicator::communicator(asio::io_context&, MPI_Comm, const communicator_options&,
                                    const comm::backend_opening*);
template comm::request_source::request_source(asio::io_context&);
template comm::request_source::request_source(asio::execution_context&);

}  // namespace cohort
