// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of all layers that need no GPU, for one file of a program that is compiled with
/// COHORT_SEPARATE_COMPILATION: see core/config.hpp. Each layer has a src.hpp of its own, so that
/// several files can share the work.

#include <cohort/cluster/src.hpp>
#include <cohort/collectives/src.hpp>
#include <cohort/comm/src.hpp>
#include <cohort/coordinator/src.hpp>
#include <cohort/core/src.hpp>
#include <cohort/graph/src.hpp>
#include <cohort/mpi/src.hpp>
#include <cohort/p2p/src.hpp>
#include <cohort/progress/src.hpp>
#include <cohort/protocol/src.hpp>
#include <cohort/rendezvous/src.hpp>
#include <cohort/shm/src.hpp>
