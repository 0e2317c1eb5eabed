// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How a communicator gets the backend that nobody has set: backend_choice::automatic.

#include <cohort/comm/backend_opening.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/core/log.hpp>

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace cohort::comm {

COHORT_INLINE bool chooses_backend(const communicator_state& over) noexcept {
  return chooses_backend_over_nodes(over) && over.is_on_one_node();
}

COHORT_INLINE bool chooses_backend_over_nodes(const communicator_state& over) noexcept {
  if (over.options.backend == backend_choice::mpi || over.data.size() == 1) return false;
  if (over.options.checks == checks::cross_rank || over.data.is_inter()) return false;
  if (over.opening == nullptr || !over.bells) return false;
  for (int each = 0; each < over.data.size(); ++each) {
    if (!over.bells->choose_alike(over.bell_rank(each))) return false;
  }
  return over.options.backend != backend_choice::shm || over.is_on_one_node();
}

namespace detail {

/// Collectives that a communicator has begun when it opens a backend: one that does few needs none.
inline constexpr std::uint64_t collectives_before_opening = 16;
/// And how many it begins while it asks whether the other ranks have come, too.
inline constexpr std::uint64_t collectives_of_patience = 10'000;

/// On rank 0, of a communicator that opens none.
inline void log_unopened(log::level severity, const communicator_state& of, std::string_view what) {
  log::write(severity, "communicator of " + std::to_string(of.data.size()) +
                           " ranks: " + std::string(what) +
                           ", and the file that constructs it does not include "
                           "<cohort/shm.hpp>; goes through MPI");
}

}  // namespace detail

COHORT_INLINE void communicator_state::choose_backend() {
  ++collectives;
  if (choosing == backend_choosing::ahead) {
    if (collectives != detail::collectives_before_opening) return;
    choosing = backend_choosing::over;
    if (opening == nullptr && data.rank() == 0 && !has_staged_verbs.load()) {
      try {
        detail::log_unopened(log::level::info, *this, "might share memory");
      } catch (const std::bad_alloc&) {  // a line is missing
      }
    }
    if (!chooses_backend(*this)) return;
    choosing = backend_choosing::under_way;
    opening->begin(*this);
    return;
  }
  if (!offer) return;  // MPI still works on it
  switch_point common = detail::switch_of(*offer, data.size());
  if (common.is_behind(collectives)) {
    offer->maker->all_have_joined();
    backend = std::move(offer->made);
    try {
      if (data.rank() == 0) {
        detail::log_choice(communicator::of(*this), "communicator", {}, backend->name());
      }
    } catch (const std::bad_alloc&) {  // a line is missing
    }
  } else if (collectives < detail::collectives_of_patience || !common.refuse()) {
    return;
  }
  choosing = backend_choosing::over;
  offer.reset();
}

}  // namespace cohort::comm
