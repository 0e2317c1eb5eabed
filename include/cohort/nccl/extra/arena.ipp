// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `nccl/extra/arena.hpp`.

#include <cohort/core/log.hpp>
#include <cohort/nccl/extra/arena.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::nccl::detail {

// NCCL 2.18 has none of these calls.

inline ncclResult_t allocate(void** memory, std::size_t bytes) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
  return ncclMemAlloc(memory, bytes);
#else
  static_cast<void>(memory);
  return bytes == 0 ? ncclInvalidArgument : ncclInvalidUsage;
#endif
}

inline ncclResult_t deallocate(void* memory) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
  return ncclMemFree(memory);
#else
  return memory == nullptr ? ncclSuccess : ncclInvalidUsage;
#endif
}

inline ncclResult_t enlist(communicator_state& comm, arena_state& state) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
  const auto is_gone = [](const auto& each) { return each.comm.expired(); };
  std::erase_if(state.registered, is_gone);
  state.registered.push_back({comm.weak_from_this(), nullptr});
  return ncclCommRegister(comm.native, state.memory, state.bytes, &state.registered.back().handle);
#else
  static_cast<void>(comm);
  static_cast<void>(state);
  return ncclInvalidUsage;
#endif
}

inline void delist(ncclComm_t comm, void* handle) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
  if (handle != nullptr) static_cast<void>(ncclCommDeregister(comm, handle));
#else
  static_cast<void>(comm);
  static_cast<void>(handle);
#endif
}

/// What may wait for the device, on a thread of its own that may outlive whoever waits for it.
struct memory_call {
  std::atomic<bool> done{false};
  void* memory = nullptr;
  std::error_code failed;
};

inline void run_apart(const std::shared_ptr<memory_call>& call, const arena_state& of,
                      std::size_t bytes) {
  std::thread([call, device = of.device, plain = of.plain, bytes] {
    static_cast<void>(cudaSetDevice(device));
    if (plain) {
      call->failed = device::make_error(bytes == 0 ? cudaFree(call->memory)
                                                   : cudaMalloc(&call->memory, bytes));
    } else {
      const auto code = bytes == 0 ? deallocate(call->memory) : allocate(&call->memory, bytes);
      if (code != ncclSuccess) call->failed = make_error(code);
    }
    call->done.store(true);
  }).detach();
}

/// Memory that is being taken, on a thread. With the device's queue held, and nothing of the
/// library's on the device.
class memory_taking {
 public:
  explicit memory_taking(arena_state& state)
      : state_(state), bound_(std::chrono::steady_clock::now() + state.make_bound) {
    state.generation = device::state_of(state.device).generation();
    run_apart(call_, state, state.bytes);
  }
  [[nodiscard]] bool is_over() const {
    return call_->done.load() || std::chrono::steady_clock::now() >= bound_;
  }
  /// When it is. Throws std::system_error.
  void finish() {
    const char* const name = state_.plain ? "cudaMalloc" : "ncclMemAlloc";
    if (!call_->done.load()) throw std::system_error(errc::stalled, name);
    if (call_->failed) throw std::system_error(call_->failed, name);
    state_.memory = call_->memory;
  }

 private:
  arena_state& state_;
  std::chrono::steady_clock::time_point bound_;
  std::shared_ptr<memory_call> call_ = std::make_shared<memory_call>();
};

// With the device's queue held, and nothing of the library's on the device, the only thing that an
// allocation or a free can still wait for is work of the user's, which waits for no peer behind it.
//
// 1. The place in the queue comes, and what runs on the device ends.
// 2. To make: memory is allocated on a thread, then registered on each communicator.
//    To free: it is taken off the communicators that are still there, then freed on a thread.
// 3. The queue goes on.

COHORT_INLINE progress::look_task<arena> make_arena(
    std::shared_ptr<arena_state> state, std::vector<std::shared_ptr<communicator_state>> comms,
    turn place) {
  issue_source& source = *state->source;
  const auto broken = [&] {
    for (const auto& comm : comms) {
      if (comm->stands != phase::ready)
        return comm->why ? comm->why : make_error_code(errc::closed);
    }
    return std::error_code();
  };
  look_condition drained(
      source, [&] { return (place.has_come() && source.is_drained(state->device)) || broken(); });
  co_await drained;
  if (const std::error_code why = broken()) throw std::system_error(why, "make_arena");
  memory_taking taking(*state);
  look_condition allocated(source, [&] { return taking.is_over(); });
  co_await allocated;
  taking.finish();
  arena made(state);  // frees it if the rest fails
  source.exclusively([&] {
    for (const auto& comm : comms) {
      if (const std::error_code why = broken()) throw std::system_error(why, "make_arena");
      check(enlist(*comm, *state), "ncclCommRegister");
    }
  });
  co_return made;
}

inline progress::look_task<> free_arena(std::shared_ptr<arena_state> state, turn place) {
  issue_source& source = *state->source;
  const auto is_settled = [](const auto& each) {
    const auto comm = each.comm.lock();
    if (!comm) return true;
    const phase stands = comm->stands;
    // One that leaves behind this in the queue waits for it.
    const bool is_behind = stands == phase::leaving && comm->place && !comm->place->come;
    return stands == phase::ready || is_behind || stands == phase::gone || stands == phase::leaked;
  };
  look_condition drained(source, [&] {
    return place.has_come() && source.is_drained(state->device) &&
           std::all_of(state->registered.begin(), state->registered.end(), is_settled);
  });
  co_await drained;
  device::device_state& where = device::state_of(state->device);
  if (!where.may_free(state->generation)) co_return;
  source.exclusively([&] {
    for (const auto& each : state->registered) {
      const auto comm = each.comm.lock();
      if (!comm) continue;
      const phase stands = comm->stands;
      if (stands == phase::ready || stands == phase::leaving) delist(comm->native, each.handle);
    }
  });
  const auto call = std::make_shared<memory_call>();
  call->memory = state->memory;
  run_apart(call, *state, 0);
  const auto bound = std::chrono::steady_clock::now() + state->free_bound;
  look_condition freed(
      source, [&] { return call->done.load() || std::chrono::steady_clock::now() >= bound; });
  co_await freed;
}

COHORT_INLINE void free_later(std::shared_ptr<arena_state> state) noexcept {
  issue_source& source = *state->source;
  if (state->memory == nullptr || source.engine().stopped()) return;
  try {
    turn place = source.reserve(state->device);
    progress::begin_look_task(free_arena(state, std::move(place)), {.verb = "nccl arena"},
                              [](std::exception_ptr) {});  // the engine has ended: it stays
  } catch (const std::exception& failed) {
    log::write(log::level::error, std::string("an nccl arena is leaked: ") + failed.what());
  }
}

}  // namespace cohort::nccl::detail
