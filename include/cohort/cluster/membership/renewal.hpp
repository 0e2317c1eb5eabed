// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The communicator that calls of all get when their old one is stuck in a collective.

#include <cohort/comm/communicator.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/mpi/comm.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Makes a communicator of these ranks of `control`, on which there is no collective; other ranks
/// need not take part, as they may be stuck. Collective over the members, which are all on their
/// way here. Blocks until they have come.
///
/// `old`, the one that it is for, is left to MPI for good: messages of a collective that is stuck
/// may be on their way in it, and must not meet another communicator of the same number.
template <class Any = void>
[[nodiscard]] communicator renew(const communicator& old, const communicator& control,
                                 const std::vector<std::int32_t>& members, int round) {
  if (old) old.state()->keep();
  const mpi::comm_ref parent = control.state()->data.borrow();
  const mpi::group chosen = parent.group().include(ranks(members));
  // It takes no turn among creations (comm/creation.hpp): see docs/design/communicators.md.
  // Tags differ so that no two that follow each other are alike, and none is that of the transport,
  // which keeps a receive from any rank posted: Open MPI 4.1 hangs in a creation with its tag.
  constexpr int tags = 1000;
  mpi::comm data = parent.create(chosen, 1 + round % tags);
  mpi::comm exchange = data.dup();
  return communicator::adopt(control, std::move(data), std::move(exchange));
}

}  // namespace cohort::cluster
