// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The umbrella: everything that needs no GPU.

#include <cohort/cluster.hpp>
#include <cohort/collectives.hpp>
#include <cohort/comm.hpp>
#include <cohort/coordinator.hpp>
#include <cohort/core.hpp>
#include <cohort/mpi.hpp>
#include <cohort/p2p.hpp>
#include <cohort/progress.hpp>
#include <cohort/rendezvous.hpp>
#include <cohort/shm.hpp>
