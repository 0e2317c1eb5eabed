// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Body of renewal.hpp.

#include <cohort/cluster/renewal.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/group.hpp>

#include <utility>

namespace cohort::cluster {

template <class Any>
communicator renew(const communicator& old, const communicator& control,
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
