// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How a backend makes fusion arenas, registers them, and knows what lies in them.

#include <cohort/nccl/backend/device_plane.hpp>
#include <cohort/nccl/backend/extras.hpp>
#include <cohort/nccl/extra/arena.ipp>
#include <cohort/nccl/extra/fusion_arena.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// The arenas of one backend. Guarded by the lock of the issuing source.
///
/// 1. Elected, and started in that order: the turn in the device's queue is taken where those of
///    the operations are.
/// 2. The turn has come, and what runs on the device has ended. Communicators that were to be
///    opened before are there: their turns came first.
/// 3. Memory is taken on a thread, for that may wait for the device, and registered on all
///    communicators.
/// 4. The queue goes on.
class fusion_arenas final : public arena_maker {
 public:
  explicit fusion_arenas(device_plane& plane) noexcept : plane_(plane) {}

  void start(comm::device_call& what, comm::backend_completion done) override;
  bool forget(const comm::request_operation& op) override;
  [[nodiscard]] comm::arena_place locate(comm::device_buffer& of) const override;
  [[nodiscard]] bool is_registered(const void* data) const override;
  [[nodiscard]] bool are_registered() const noexcept override { return made_ && registers(); }
  [[nodiscard]] progress::look_task<> enlist_all_on(std::shared_ptr<communicator_state> comm,
                                                    turn place) override;

 private:
  /// One that is being made.
  struct making {
    comm::device_call* what;  // null: nobody waits for it any more
    comm::backend_completion done;
    std::vector<std::uint32_t> sets;  // opened before it
  };
  [[nodiscard]] bool registers() const noexcept {
    return !plane_.options().hierarchical && detail::has_arenas();
  }
  void begin(const std::shared_ptr<making>& which);
  [[nodiscard]] progress::look_task<> make(std::shared_ptr<making> which, turn place);
  void made(const std::shared_ptr<making>& which, std::error_code why);
  static void enlist_on(communicator_state& comm, const fusion_memory& memory);

  device_plane& plane_;
  std::shared_ptr<fusion_table> table_ = std::make_shared<fusion_table>();
  std::vector<std::shared_ptr<making>> makings_;
  bool made_ = false;
};

COHORT_INLINE void fusion_arenas::start(comm::device_call& what, comm::backend_completion done) {
  auto made = std::make_shared<making>(making{&what, done, {}});
  plane_.change([&] {
    makings_.push_back(made);
    plane_.begin_in_order([this, keep = plane_.shared_from_this(), made] { begin(made); });
  });
}

COHORT_INLINE void fusion_arenas::begin(const std::shared_ptr<making>& which) {
  made_ = true;
  for (const auto& [number, its] : plane_.sets().all()) which->sets.push_back(number);
  issue_source& source = plane_.source();
  turn place = plane_.is_device() ? source.reserve(plane_.device()) : turn();
  auto done = [this, keep = plane_.shared_from_this(), which](const std::exception_ptr& why) {
    made(which, detail::problem_of(why).code);
  };
  progress::begin_look_task(detail::at_next_look(source, make(which, std::move(place))),
                            {.verb = "make_fusion_arena"}, std::move(done));
}

COHORT_INLINE progress::look_task<> fusion_arenas::make(std::shared_ptr<making> which, turn place) {
  issue_source& source = plane_.source();
  const auto broken = [&]() -> std::error_code {
    if (which->what == nullptr) return errc::aborted;
    if (plane_.failed()) return plane_.failed();
    for (const std::uint32_t number : which->sets) {
      const device_set& its = plane_.sets()[number];
      if (its.failed) return its.failed;
      if (!its.comm || its.comm.state()->stands == phase::ready) continue;
      return its.comm.state()->why ? its.comm.state()->why : make_error_code(errc::closed);
    }
    return {};
  };
  const auto are_open = [&] {
    return std::all_of(which->sets.begin(), which->sets.end(), [&](std::uint32_t number) {
      const device_set& its = plane_.sets()[number];
      return its.comm || its.failed;
    });
  };
  look_condition drained(source, [&] {
    return broken() || (are_open() && place.has_come() && source.is_drained(plane_.device()));
  });
  co_await drained;
  std::size_t bytes = 0;
  const std::error_code why = source.exclusively([&] {
    if (which->what != nullptr) bytes = which->what->reserves;
    return broken();
  });
  if (why) throw std::system_error(why, "make_fusion_arena");
  auto made = std::make_shared<fusion_memory>(table_, source, plane_.device());
  detail::arena_state& state = made->state();
  state.make_bound = plane_.options().communicator.init_bound;
  state.free_bound = plane_.options().communicator.leave_bound;
  state.plain = !registers();
  state.bytes = made->bytes = bytes;
  detail::memory_taking taking(state);
  look_condition taken(source, [&] { return taking.is_over(); }, true);
  co_await taken;
  detail::problem bad;
  try {
    taking.finish();
  } catch (const std::system_error& failed) {
    bad = {failed.code(), failed.what()};
  }
  made->memory = state.memory;
  source.exclusively([&] {
    if (which->what == nullptr) return;
    made->number = which->what->sequence;
    if (made->memory != nullptr) table_->add(made);
    try {
      for (const auto& [number, its] : plane_.sets().all()) {
        if (bad.code || state.plain || !its.comm) continue;
        enlist_on(*its.comm.state(), *made);
      }
    } catch (const std::system_error& failed) {
      bad = {failed.code(), failed.what()};
    }
    made->registered = !bad.code && !state.plain;
    made->failed = bad.code;
    made->text = bad.text;
    which->what->arena = made;
  });
}

COHORT_INLINE void fusion_arenas::enlist_on(communicator_state& comm, const fusion_memory& memory) {
  if (comm.stands != phase::ready) {
    throw std::system_error(comm.why ? comm.why : make_error_code(errc::closed), "a fusion arena");
  }
  check(detail::enlist(comm, memory.state()), "ncclCommRegister");
}

COHORT_INLINE void fusion_arenas::made(const std::shared_ptr<making>& which, std::error_code why) {
  const bool wanted = plane_.source().exclusively([&] {
    std::erase(makings_, which);
    return which->what != nullptr;
  });
  if (wanted) {
    plane_.call_at_look([done = which->done, why] { done.in_look(why); });
  }
}

/// The communicator of a set that was opened after arenas were made.
COHORT_INLINE progress::look_task<> fusion_arenas::enlist_all_on(
    std::shared_ptr<communicator_state> comm, turn place) {
  issue_source& source = plane_.source();
  look_condition drained(source, [&] {
    return comm->stands != phase::ready || plane_.failed() ||
           (place.has_come() && source.is_drained(plane_.device()));
  });
  co_await drained;
  const auto all = table_->all();
  source.exclusively([&] {
    for (const auto& each : all) {
      if (!each->state().plain) enlist_on(*comm, *each);
    }
  });
}

// ---- places ----------------------------------------------------------------------------------

COHORT_INLINE comm::arena_place fusion_arenas::locate(comm::device_buffer& of) const {
  if (of.bytes == 0) return {};
  auto memory = table_->find(of.data);
  if (!memory) return {};
  const bool known = memory->in_use();
  const comm::arena_place place = known ? memory->place_of(of.data, of.bytes) : comm::arena_place();
  if (!of.lease) of.lease = std::move(memory);
  return place;
}

COHORT_INLINE bool fusion_arenas::is_registered(const void* data) const {
  const auto memory = data == nullptr ? nullptr : table_->find(data);
  return memory && memory->in_use();
}

COHORT_INLINE bool fusion_arenas::forget(const comm::request_operation& op) {
  for (const auto& each : makings_) {
    if (each->what == nullptr || !each->done.is_of(op)) continue;
    each->what = nullptr;
    return true;
  }
  return false;
}

}  // namespace cohort::nccl
