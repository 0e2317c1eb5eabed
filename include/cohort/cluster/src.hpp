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
#include <cohort/cluster/detail/call_client.ipp>
#include <cohort/cluster/detail/manager.ipp>
#include <cohort/cluster/detail/renewal.ipp>
#include <cohort/cluster/detail/serve.ipp>
#include <cohort/cluster/detail/stalled_calls.ipp>
#include <cohort/cluster/detail/worker.ipp>
#include <cohort/cluster/detail/workers.ipp>
