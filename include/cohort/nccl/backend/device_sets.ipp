// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The sets of a backend: bodies of `nccl/backend/device_plane.hpp`.

#include <cohort/nccl/backend/device_plane.hpp>
#include <cohort/nccl/life/agreement.hpp>

#include <utility>
#include <vector>

namespace cohort::nccl {

COHORT_INLINE detail::making device_sets::what_to_make(turn place, detail::problem bad) const {
  communicator_options how = plane_.options_.communicator;
  how.device = plane_.device_;
  return detail::one_device(how, plane_.device_, std::move(place), nullptr, std::move(bad),
                            &plane_);
}

// What fails here alone is told to all in the exchange before NCCL's init, and for the
// communicators of nodes in one after it: either all ranks have a set or none has.
COHORT_INLINE progress::look_task<device_set> device_sets::make(cohort::communicator over,
                                                                turn place, turn node_place,
                                                                std::optional<turn> arena_place) {
  detail::problem bad;
  if (!plane_.memory_.is_there() && plane_.device_ >= 0) {
    auto taking = detail::caught(plane_.memory_.take(*plane_.source_, plane_.device_,
                                                     plane_.options_, plane_.extras_.load_kernels));
    bad = co_await taking;
  }
  device_set its;
  auto making = detail::make_all(over, what_to_make(std::move(place), std::move(bad)));
  std::vector<communicator> made = co_await making;
  its.comm = std::move(made.front());
  if (arena_place) {
    auto enlisting = detail::caught(
        plane_.extras_.arenas->enlist_all_on(its.comm.state(), std::move(*arena_place)));
    bad = co_await enlisting;
    auto agreeing = detail::agree(over, std::move(bad), "the fusion arenas were not registered");
    co_await agreeing;
  }
  if (plane_.extras_.host != nullptr) {
    auto opening = plane_.extras_.host->open(over, std::move(node_place), its);
    co_await opening;
  }
  co_return its;
}

/// It has come to its place.
COHORT_INLINE void device_sets::begin(std::uint32_t set, const cohort::communicator& over,
                                      const std::function<void(std::exception_ptr)>& done) {
  auto place = detail::place_for(over, plane_.device_);
  auto node_place = plane_.options_.hierarchical ? detail::place_for(over, plane_.device_) : turn();
  std::optional<turn> arena_place;
  if (plane_.extras_.arenas != nullptr && plane_.extras_.arenas->are_registered()) {
    arena_place.emplace(detail::place_for(over, plane_.device_));
  }
  auto making = make(over, std::move(place), std::move(node_place), std::move(arena_place));
  auto ended = [self = plane_.shared_from_this(), set, done](std::exception_ptr why,
                                                             device_set its) {
    // So that what waits here ends with that, and not with its own failure.
    if (why) done(why);
    self->sets_.made(set, std::move(its), why);
    if (!why) done(nullptr);
  };
  progress::begin_look_task(detail::at_next_look(*plane_.source_, std::move(making)),
                            {.verb = "coordinator, on its device"}, std::move(ended));
}

COHORT_INLINE void device_sets::open(std::uint32_t set, const cohort::communicator& over,
                                     std::function<void(std::exception_ptr)> done) {
  auto opening = [self = plane_.shared_from_this(), set, over, done = std::move(done)] {
    self->sets_.begin(set, over, done);
  };
  plane_.change([&] {
    static_cast<void>(all_[set]);
    plane_.hold_opening(set, std::move(opening));
  });
}

COHORT_INLINE void device_sets::made(std::uint32_t set, device_set its,
                                     const std::exception_ptr& why) {
  const std::error_code code = detail::problem_of(why).code;
  device_set unwanted;
  plane_.change([&] {
    device_set& known = all_[set];
    if (!known.failed) known.failed = code ? code : plane_.failed_;
    std::swap(known.failed ? unwanted : known, its);
  });
  for (const communicator& each : {unwanted.comm, unwanted.node}) {
    if (!each) continue;
    plane_.source_->ladder().bring_down(*each.state(), code ? code : make_error_code(errc::closed),
                                        "the coordinator has failed");
  }
}

COHORT_INLINE std::vector<device_set> device_sets::close(std::uint32_t set, bool failed) {
  std::vector<device_set> gone;
  for (auto& [number, its] : all_) {
    if (set != 0 && number != set) continue;
    if (failed || its.failed || (its.comm && its.comm.state()->has_failed)) its.keep_mpi();
    gone.push_back(std::exchange(its, device_set()));
    its.failed = errc::closed;
  }
  return gone;
}

COHORT_INLINE void device_sets::bring_down(std::error_code why, const std::string& text) const {
  std::vector<std::shared_ptr<communicator_state>> comms;
  plane_.source_->exclusively([&] {
    for (const auto& [number, its] : all_) {
      if (its.comm) comms.push_back(its.comm.state());
      if (its.node) comms.push_back(its.node.state());
      its.keep_mpi();
    }
  });
  plane_.source_->ladder().bring_down(comms, why, text);
}

}  // namespace cohort::nccl
