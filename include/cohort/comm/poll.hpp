// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::poll`: one look at everything in flight, from inside a computation.

#include <cohort/comm/communicator.hpp>

namespace cohort {

/// Lets MPI make progress once. Runs no handler: what has finished is delivered when the loop gets
/// its turn, so a future may become ready only then. Most MPI libraries move nothing while nobody
/// calls them; a look between two layers of a computation is what makes communication overlap it.
///
/// *Cost*: one `MPI_Testsome` over what is pending. *Threads*: as for starting an operation.
inline void poll(const communicator& comm) {
  if (comm) comm.state()->engine.look();
}

}  // namespace cohort
