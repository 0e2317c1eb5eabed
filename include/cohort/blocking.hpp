// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The verbs of MPI for files that only block, without a header of Asio. The communicator comes
/// from a file that makes one and includes <cohort/cohort.hpp>, or the layers that it uses.
///
/// \code
/// double sum = 1.0;  // in a function that is given `world` and is no coroutine
/// cohort::all_reduce(world, sum, cohort::op::sum, cohort::blocking);
/// \endcode
///
/// Each verb's own header, such as <cohort/collectives/all_reduce.hpp>, is less to read.
/// `cohort::blocking` is the only token here; others, and `co_await`, need <cohort/comm.hpp>.

#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/all_to_all.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/collectives/bodies/instances.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/collectives/gather.hpp>
#include <cohort/collectives/neighbor.hpp>
#include <cohort/collectives/reduce.hpp>
#include <cohort/collectives/reduce_scatter.hpp>
#include <cohort/collectives/scan.hpp>
#include <cohort/collectives/scatter.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/core/token.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/p2p/send_recv.hpp>
#include <cohort/p2p/wait.hpp>
