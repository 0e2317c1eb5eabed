// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the layer cluster, for one file of a program: see core/config.hpp.

#ifndef COHORT_SEPARATE_COMPILATION
#error \
    "a file that includes a src.hpp is compiled with COHORT_SEPARATE_COMPILATION, like all others"
#endif

// g++ takes what is included for a header, and then objects to the lambdas in coroutines that are
// not inline.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsubobject-linkage"
#endif

#include <cohort/cluster.hpp>
#include <cohort/cluster/calls/call_server.hpp>
#include <cohort/cluster/manager.hpp>
#include <cohort/cluster/membership/invitation.hpp>
#include <cohort/cluster/worker/serve.ipp>
#include <cohort/cluster/worker/worker.hpp>

namespace cohort::cluster {

template class basic_call_client<void>;
template asio::awaitable<workers> launch<void>(asio::io_context&, launch_options);
template asio::awaitable<workers> adopt<void>(communicator, adopt_options);
template bool serve<void>(int&, char**&);
template void serve<void>(const communicator&);
template void serve<void>(std::string_view, std::string_view);

// For who includes these headers, which the ones above do not.
template class basic_call_server<void>;
template class basic_manager<void>;
template class basic_worker<void>;
template communicator renew<void>(const communicator&, const communicator&,
                                  const std::vector<std::int32_t>&, int);

}  // namespace cohort::cluster
