// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A step of each rank on its own, which fails on all if it fails on one.

#include <cohort/core/config.hpp>
#include <cohort/mpi/comm.hpp>

#include <exception>
#include <string>
#include <system_error>

namespace cohort::comm {

/// The text that an exception was made with, without that of its code.
[[nodiscard]] std::string facts_of(const std::system_error& failed);

/// Throws on all ranks what it is called with on the first rank where that is not null.
void throw_on_all(const mpi::comm_ref& over, const std::exception_ptr& mine);

/// Calls `step` on each rank, and if it throws on one, throws on all: the error of the first such
/// rank, with its number. Collective over `over`, and blocks; for what comes before something that
/// blocks until all ranks are there. Of an intercommunicator each rank has its own error only.
template <class Step>
void on_all_or_none(const mpi::comm_ref& over, Step step) {
  std::exception_ptr mine;
  try {
    step();
  } catch (...) {
    mine = std::current_exception();
  }
  throw_on_all(over, mine);
}

}  // namespace cohort::comm

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/comm/agreement.ipp>
#endif
