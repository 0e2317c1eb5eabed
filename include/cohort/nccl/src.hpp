// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the layer nccl, for one file of a program: see core/config.hpp. Nothing
/// without CUDA and NCCL. Those of the layers below come from <cohort/src.hpp>.

#ifndef COHORT_SEPARATE_COMPILATION
#error \
    "a file that includes a src.hpp is compiled with COHORT_SEPARATE_COMPILATION, like all others"
#endif

// As for <cohort/cluster/src.hpp>.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsubobject-linkage"
#endif

#include <cohort/nccl.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/backend/device_plane.ipp>
#include <cohort/nccl/extra/arena.ipp>
#include <cohort/nccl/extra/install.ipp>
#include <cohort/nccl/faults/channel.ipp>
#include <cohort/nccl/life/ladder.ipp>
#include <cohort/nccl/life/making.ipp>
#include <cohort/nccl/queue/device_queue.ipp>
#include <cohort/nccl/queue/operation.ipp>
#include <cohort/nccl/queue/source.ipp>

namespace cohort::nccl {

template issue_source::issue_source(asio::io_context&);
template issue_source::issue_source(asio::execution_context&);

}  // namespace cohort::nccl

#endif
