// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Gate of the layer p2p: messages between two ranks, and any other MPI request.

#include <cohort/p2p/probe.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/p2p/send_recv.hpp>
#include <cohort/p2p/wait.hpp>
