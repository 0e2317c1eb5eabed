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

#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

namespace cohort::comm::detail {

/// Has a place in the queue of a communicator's collectives, and keeps those behind it from being
/// posted. It frees itself; `here` is null then.
class held_place final : public request_operation {
 public:
  using pointer = std::shared_ptr<held_place*>;

  /// With the guard held.
  [[nodiscard]] static pointer take(communicator_state& comm) {
    auto made = std::make_unique<held_place>(comm);
    made->check_->hold();
    poster to(comm, *made);
    made->check_->post({}, to);
    pointer here = made->here_;
    *here = made.release();
    return here;
  }
  explicit held_place(communicator_state& comm)
      : request_operation(&run),
        check_(comm.source.make_check(comm, *this, [](request_operation*) noexcept {})),
        here_(std::make_shared<held_place*>(nullptr)) {
    verb = "backend";
    stalls = false;
  }
  /// What waits is posted. With the guard held.
  static void open(const pointer& here) {
    if (*here != nullptr) (*here)->check_->open({});
  }

 private:
  static void run(progress::operation* base, action) {
    const std::unique_ptr<held_place> self(static_cast<held_place*>(base));
    *self->here_ = nullptr;
  }
  std::unique_ptr<argument_check> check_;
  pointer here_;
};

/// What is done at the end.
struct opening_end {
  communicator_state* of;
  held_place::pointer place;

  void operator()(const std::exception_ptr& why, opened_backend made) const {
    const request_source::guard hold(of->source);
    const bool is_used = made && of->choosing == backend_choosing::under_way;
    of->choosing = backend_choosing::over;
    if (is_used) of->backend = made;
    held_place::open(place);
    if (why) log::write(log::level::error, "communicator: no backend: " + describe_exception(why));
  }
};

}  // namespace cohort::comm::detail

namespace cohort::comm {

COHORT_INLINE bool chooses_backend(const communicator_state& over) noexcept {
  if (over.options.backend != backend_choice::automatic || over.data.size() == 1) return false;
  if (over.options.checks == checks::cross_rank || over.data.is_inter()) return false;
  if (node_backend_maker.load(std::memory_order_relaxed) == nullptr || !over.bells) return false;
  for (int each = 0; each < over.data.size(); ++each) {
    if (!over.bells->may_share_backend(over.bell_rank(each))) return false;
  }
  return true;
}

COHORT_INLINE void communicator_state::open_backend() {
  choosing = backend_choosing::over;
  if (!chooses_backend(*this)) return;
  const detail::held_place::pointer place = detail::held_place::take(*this);
  choosing = backend_choosing::under_way;
  try {
    progress::begin_look_task(open_backend_together(communicator::of(*this), 1, "communicator"),
                              {.verb = "backend"}, detail::opening_end{this, place});
  } catch (...) {
    choosing = backend_choosing::over;
    detail::held_place::open(place);
    throw;
  }
}

}  // namespace cohort::comm
