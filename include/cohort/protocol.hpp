// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Gate of the layer protocol: how ranks agree on what runs next, without MPI, Asio, threads
/// or a clock.

#include <cohort/protocol/node.hpp>
#include <cohort/protocol/start_queue.hpp>
#include <cohort/protocol/validation.hpp>
