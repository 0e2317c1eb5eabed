// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How a communicator gets the backend that nobody has set: backend_choice::automatic.

#include <cohort/comm/backend_opening.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/core/exception.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/look_task.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

namespace cohort::comm {

COHORT_INLINE bool chooses_backend(const communicator_state& over) noexcept {
  return chooses_backend_over_nodes(over) && over.is_on_one_node();
}

COHORT_INLINE bool chooses_backend_over_nodes(const communicator_state& over) noexcept {
  if (over.options.backend == backend_choice::mpi || over.data.size() == 1) return false;
  if (over.options.checks == checks::cross_rank || over.data.is_inter()) return false;
  if (node_backend_maker.load(std::memory_order_relaxed) == nullptr || !over.bells) return false;
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

[[nodiscard]] inline switch_point switch_of(backend_offer& offer, int ranks) noexcept {
  return {*reinterpret_cast<switch_point::word*>(offer.maker->beside().data()), ranks};
}

/// This rank has done what it can alone. With the guard held.
struct opening_end {
  communicator_state* of;

  void operator()(const std::exception_ptr& failed, backend_offer mine) const {
    if (of->choosing != backend_choosing::under_way) return;
    if (mine.made) {
      auto kept = std::make_unique<backend_offer>(std::move(mine));
      detail::switch_of(*kept, of->data.size()).join(of->collectives);  // for good
      of->offer = std::move(kept);
      return;
    }
    of->choosing = backend_choosing::over;
    std::string why = failed ? describe_exception(failed) : std::string(mine.why.data());
    if (why.empty()) return;  // rank 0 has logged it
    why.insert(0, "rank " + std::to_string(of->data.rank()) + ": ");
    log_choice(communicator::of(*of), "communicator", why, {});
  }
};

}  // namespace detail

COHORT_INLINE void communicator_state::choose_backend() {
  ++collectives;
  if (choosing == backend_choosing::ahead) {
    if (collectives != detail::collectives_before_opening) return;
    choosing = backend_choosing::over;
    if (!chooses_backend(*this)) return;
    choosing = backend_choosing::under_way;
    progress::begin_look_task(offer_backend(communicator::of(*this), exchange.native(),
                                            {.orders = 1, .bytes_beside = 64}),
                              {.verb = "backend", .owner = this, .stalls = false},
                              detail::opening_end{this});
    joint::operation::make_optional(*this, this);
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

namespace detail {

/// All ranks have opened it, or none. Another thread may run the loop.
struct opening_over_nodes_end {
  struct result {
    std::exception_ptr failed;
    std::shared_ptr<any_backend> backend;
    std::atomic<bool> has_come{false};  // written last
  };
  std::shared_ptr<result> of;

  void operator()(const std::exception_ptr& failed, opened_backend made) const {
    of->failed = failed;
    of->backend = std::move(made.backend);
    of->has_come.store(true, std::memory_order_release);
  }
};

}  // namespace detail

/// All ranks are in the constructor of the communicator, so nothing else of theirs waits for this.
COHORT_INLINE void communicator_state::open_backend_over_nodes() {
  if (options.backend != backend_choice::hierarchical) return;
  if (!chooses_backend_over_nodes(*this) || is_on_one_node()) return;
  const auto result = std::make_shared<detail::opening_over_nodes_end::result>();
  progress::begin_look_task(
      open_backend_together(communicator::of(*this), exchange.native(), {}, "communicator"),
      {.verb = "backend", .owner = this}, detail::opening_over_nodes_end{result});
  while (!result->has_come.load(std::memory_order_acquire)) engine.look();
  if (result->failed) std::rethrow_exception(result->failed);
  replace_backend(std::move(result->backend));
}

}  // namespace cohort::comm
