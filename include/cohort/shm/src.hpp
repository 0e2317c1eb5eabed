// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the layer shm, for one file of a program: see core/config.hpp.

#ifndef COHORT_SEPARATE_COMPILATION
#error \
    "a file that includes a src.hpp is compiled with COHORT_SEPARATE_COMPILATION, like all others"
#endif

#include <cohort/shm.hpp>
#include <cohort/shm/between/messages.ipp>
#include <cohort/shm/between/nodes.ipp>
#include <cohort/shm/plane/backend.ipp>
#include <cohort/shm/plane/between.ipp>
#include <cohort/shm/plane/late_thread.ipp>
#include <cohort/shm/plane/marks.ipp>
#include <cohort/shm/plane/memory.ipp>
#include <cohort/shm/plane/sequence.ipp>

namespace cohort::shm {

template asio::awaitable<backend> make_backend(communicator, backend_options);
template struct backend_opener<void>;

}  // namespace cohort::shm
