// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What `nccl::device_plane` does for arenas: makes them, registers them, and finds tensors that
/// lie side by side in them.

#include <cohort/nccl/backend/device_plane.hpp>

#include <cohort/nccl/life/agreement.hpp>

#include <algorithm>
#include <utility>

namespace cohort::nccl {

// ---- making ----------------------------------------------------------------------------------

// 1. Elected, and started in that order: the turn in the device's queue is taken where those of the
//    operations are.
// 2. The turn has come, and what runs on the device has ended. Communicators that were to be opened
//    before are there: their turns came first.
// 3. Memory is taken on a thread, for that may wait for the device, and registered on all
//    communicators.
// 4. The queue goes on.

COHORT_INLINE bool device_plane::registers() const noexcept {
  return !options_.hierarchical && detail::has_arenas();
}

COHORT_INLINE void device_plane::start_arena(comm::device_call& what,
                                             comm::backend_completion done) {
  auto job = std::make_shared<arena_job>(arena_job{&what, done, {}});
  std::vector<work*> ended;
  source_->exclusively([&] {
    arena_jobs_.push_back(job);
    held_.push_back({nullptr, [self = shared_from_this(), job] { self->begin_arena(job); }});
    submit_what_can_be(ended);
  });
  finish_outside(ended);
  source_->engine().started();
}

COHORT_INLINE void device_plane::begin_arena(const std::shared_ptr<arena_job>& job) {
  arenas_made_ = true;
  for (const auto& [number, its] : sets_) job->sets.push_back(number);
  turn place = is_device() ? source_->reserve(device_) : turn();
  auto done = [self = shared_from_this(), job](const std::exception_ptr& why) {
    self->arena_made(job, detail::problem_of(why).code);
  };
  progress::begin_look_task(detail::at_next_look(*source_, make_arena(job, std::move(place))),
                            {.verb = "make_fusion_arena"}, std::move(done));
}

COHORT_INLINE progress::look_task<> device_plane::make_arena(std::shared_ptr<arena_job> job,
                                                             turn place) {
  const auto broken = [&]() -> std::error_code {
    if (job->what == nullptr) return errc::aborted;
    if (failed_) return failed_;
    for (const std::uint32_t number : job->sets) {
      const set_state& its = sets_[number];
      if (its.failed) return its.failed;
      if (!its.comm || its.comm.state()->stands == phase::ready) continue;
      return its.comm.state()->why ? its.comm.state()->why : make_error_code(errc::closed);
    }
    return {};
  };
  const auto are_open = [&] {
    return std::all_of(job->sets.begin(), job->sets.end(), [&](std::uint32_t number) {
      const set_state& its = sets_[number];
      return its.comm || its.failed;
    });
  };
  look_condition drained(*source_, [&] {
    return broken() || (are_open() && place.has_come() && source_->is_drained(device_));
  });
  co_await drained;
  std::size_t bytes = 0;
  const std::error_code why = source_->exclusively([&] {
    if (job->what != nullptr) bytes = job->what->reserves;
    return broken();
  });
  if (why) throw std::system_error(why, "make_fusion_arena");
  auto made = std::make_shared<fusion_memory>(arenas_, *source_, device_);
  detail::arena_state& state = made->state();
  state.make_bound = options_.communicator.init_bound;
  state.free_bound = options_.communicator.leave_bound;
  state.plain = !registers();
  state.bytes = made->bytes = bytes;
  detail::memory_taking taking(state);
  look_condition taken(
      *source_, [&] { return taking.is_over(); }, true);
  co_await taken;
  detail::problem bad;
  try {
    taking.finish();
  } catch (const std::system_error& failed) {
    bad = {failed.code(), failed.what()};
  }
  made->memory = state.memory;
  source_->exclusively([&] {
    if (job->what == nullptr) return;
    made->number = job->what->sequence;
    if (made->memory != nullptr) arenas_->add(made);
    try {
      for (const auto& [number, its] : sets_) {
        if (bad.code || state.plain || !its.comm) continue;
        enlist_on(*its.comm.state(), *made);
      }
    } catch (const std::system_error& failed) {
      bad = {failed.code(), failed.what()};
    }
    made->registered = !bad.code && !state.plain;
    made->failed = bad.code;
    made->text = bad.text;
    job->what->arena = made;
  });
}

COHORT_INLINE void device_plane::enlist_on(communicator_state& comm, const fusion_memory& memory) {
  if (comm.stands != phase::ready) {
    throw std::system_error(comm.why ? comm.why : make_error_code(errc::closed), "a fusion arena");
  }
  check(detail::enlist(comm, memory.state()), "ncclCommRegister");
}

COHORT_INLINE void device_plane::arena_made(const std::shared_ptr<arena_job>& job,
                                            std::error_code why) {
  const bool wanted = source_->exclusively([&] {
    std::erase(arena_jobs_, job);
    return job->what != nullptr;
  });
  if (wanted) {
    call_at_look([done = job->done, why] { done.in_look(why); });
  }
}

/// The communicator of a set that was opened after arenas were made.
COHORT_INLINE progress::look_task<> device_plane::enlist_all_on(
    std::shared_ptr<communicator_state> comm, turn place) {
  look_condition drained(*source_, [&] {
    return comm->stands != phase::ready || failed_ ||
           (place.has_come() && source_->is_drained(device_));
  });
  co_await drained;
  const auto all = arenas_->all();
  source_->exclusively([&] {
    for (const auto& each : all) {
      if (!each->state().plain) enlist_on(*comm, *each);
    }
  });
}

// ---- places ----------------------------------------------------------------------------------

COHORT_INLINE comm::arena_place device_plane::place_of(const void* data, std::size_t bytes,
                                                       std::shared_ptr<const void>& lease) const {
  if (bytes == 0) return {};
  auto memory = arenas_->find(data);
  if (!memory) return {};
  const bool known = memory->in_use();
  const comm::arena_place place = known ? memory->place_of(data, bytes) : comm::arena_place();
  lease = std::move(memory);
  return place;
}

COHORT_INLINE bool device_plane::is_registered(const void* data) const {
  const auto memory = data == nullptr ? nullptr : arenas_->find(data);
  return memory && memory->in_use();
}

/// Whether these tensors, which one call would reduce or broadcast, are one range of an arena: then
/// what of it. By what is equal on all ranks; where the tensors are not there on this rank alone,
/// because it has given up the operation, it throws.
COHORT_INLINE std::optional<elected_work::range> elected_work::range_of(std::size_t first,
                                                                        std::size_t count) const {
  struct part {
    const comm::device_tensor* tensor;
    std::uint64_t begin;
  };
  std::vector<part> parts;
  const treatment how = treatment_of(tensors()[first]);
  for (const comm::device_tensor& each : tensors().subspan(first, count)) {
    if (detail::bytes_of(each) == 0) continue;
    const comm::arena_place& place = each.place;
    const std::size_t unit = std::max<std::size_t>(each.size, 1);
    const bool fits =
        place.arena != 0 && place.offset % unit == 0 && each.all_bring && how.scale_before == 1;
    if (!fits) return std::nullopt;
    parts.push_back({&each, place.offset});
  }
  if (parts.empty()) return std::nullopt;
  std::sort(parts.begin(), parts.end(),
            [](const part& a, const part& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const comm::arena_place& before = parts[i - 1].tensor->place;
    const std::uint64_t end = before.offset + detail::bytes_of(*parts[i - 1].tensor);
    const bool beside =
        parts[i].begin == end || (before.padded && parts[i].begin == detail::aligned(end));
    if (parts[i].tensor->place.arena != before.arena || !beside) return std::nullopt;
  }
  for (const part& each : parts) {
    const comm::device_tensor& tensor = *each.tensor;
    const bool reads = what_->kind == comm::collective::all_reduce || comm->rank == what_->root;
    if (tensor.out != nullptr && (!reads || tensor.in == tensor.out)) continue;
    throw cohort::error(errc::not_accepting, "this rank has given up tensors in a fusion arena");
  }
  const comm::device_tensor& last = *parts.back().tensor;
  return range{static_cast<std::byte*>(parts.front().tensor->out),
               last.place.offset + detail::bytes_of(last) - parts.front().begin};
}

/// Memory that NCCL may read: not registered, because it need not be on the other ranks.
COHORT_INLINE const void* elected_work::readable(const void* data, std::size_t size) {
  if (size == 0 || !plane_->is_registered(data)) return data;
  std::byte* const room = take_room(size);
  const device::batch_part whole{room, data, size};
  device::copy_batch(packing(), std::span(&whole, 1));
  return room;
}

/// The same to write; what comes is copied to `data` afterwards.
COHORT_INLINE void* elected_work::writable(void* data, std::size_t size) {
  if (data == nullptr) return take_room(size);
  if (size == 0 || !plane_->is_registered(data)) return data;
  std::byte* const room = take_room(size);
  brought_.push_back({data, room, size});
  return room;
}

}  // namespace cohort::nccl
