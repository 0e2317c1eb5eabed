// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// A step of each rank on its own, which fails on all if it fails on one.

#include <cohort/core/config.hpp>
#include <cohort/core/error.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/lock.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
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

inline std::string facts_of(const std::system_error& failed) {
  std::string text = failed.what();
  const std::string of_code = failed.code().message();
  if (!text.ends_with(of_code)) return text;
  text.resize(text.size() - of_code.size());
  if (text.ends_with(": ")) text.resize(text.size() - 2);
  return text;
}

/// What a rank tells the others of a step that has failed there.
struct refusal {
  enum class kind : std::int32_t { library, system, mpi };
  kind of = kind::system;
  std::int32_t value = static_cast<std::int32_t>(std::errc::not_enough_memory);  // to tell more
  std::array<char, 248> text{};

  void set(const std::system_error& failed) {
    const std::error_code code = failed.code();
    value = code.value();
    if (code.category() == cohort_category()) {
      of = kind::library;
    } else if (code.category() == mpi::mpi_category()) {
      of = kind::mpi;
      value = mpi::error_class(code);
    } else if (code.category() != std::generic_category() &&
               code.category() != std::system_category()) {
      of = kind::library;
      value = static_cast<std::int32_t>(errc::aborted);
    }
    const std::string facts = facts_of(failed);
    std::copy_n(facts.data(), std::min(facts.size(), text.size() - 1), text.data());
  }
  [[nodiscard]] std::error_code code() const noexcept {
    if (of == kind::library) return make_error_code(static_cast<errc>(value));
    if (of == kind::mpi) return mpi::make_error(value);
    return {value, std::generic_category()};
  }
};

inline void throw_on_all(const mpi::comm_ref& over, const std::exception_ptr& mine) {
  if (over.is_inter()) {
    if (mine) std::rethrow_exception(mine);
    return;
  }
  refusal told;
  try {
    try {
      if (mine) std::rethrow_exception(mine);
    } catch (const std::system_error& failed) {
      told.set(failed);
    }
  } catch (...) {  // of another kind, or no memory to tell more
  }
  int first = mine ? over.rank() : over.size();
  {
    const mpi::lock calls;
    mpi::check(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, over.native()),
               "MPI_Allreduce");
    if (first == over.size()) return;
    mpi::check(MPI_Bcast(&told, sizeof(told), MPI_BYTE, first, over.native()), "MPI_Bcast");
  }
  const std::string facts = told.text.data();
  throw error(told.code(), "rank " + std::to_string(first) + (facts.empty() ? "" : ": ") + facts);
}

}  // namespace cohort::comm
