// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::nccl::arena`: device memory of NCCL's own, registered on communicators.
/// For the room `extra` see `extra/install.ipp`.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/device/span.hpp>
#include <cohort/nccl/communicator.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::nccl {

namespace detail {

/// The memory and where it is registered. What is not freed by `free_arena` stays. Guarded by the
/// source.
struct arena_state {
  struct registration {
    std::weak_ptr<communicator_state> comm;  // NCCL ends it with the communicator
    void* handle;
  };
  issue_source* source = nullptr;
  std::vector<registration> registered;
  std::chrono::nanoseconds make_bound{};
  std::chrono::nanoseconds free_bound{};
  bool plain = false;  // from cudaMalloc
  void* memory = nullptr;
  std::size_t bytes = 0;
  int device = -1;
  std::uint32_t generation = 0;
};

void free_later(std::shared_ptr<arena_state> state) noexcept;

}  // namespace detail

/// Device memory from `ncclMemAlloc`, registered with `ncclCommRegister` on one or more
/// communicators of one device, which lets NCCL work in it without copies of its own. A handle:
/// copies are the same memory.
///
/// When the last handle goes, the memory is given back in the background, when the operations that
/// were started on the device before have ended; `io.run()` returns after that. So operations on
/// its spans may be in flight then. Nothing is freed after a leak, on a device that was lost or
/// reset, or when the context has ended before. Handles must not outlive the context.
class arena {
 public:
  /// Of nothing.
  arena() noexcept {}
  explicit arena(std::shared_ptr<detail::arena_state> state)
      : handle_(std::make_shared<const handle>(std::move(state))) {}

  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }
  [[nodiscard]] std::size_t bytes() const noexcept { return handle_ ? handle_->state->bytes : 0; }
  [[nodiscard]] int device() const noexcept { return handle_ ? handle_->state->device : -1; }

  /// `count` elements from the byte `offset` on; valid as long as the arena. Throws
  /// error(errc::invalid_argument) beyond the end, or where T is not aligned.
  template <class T>
  [[nodiscard]] device::span<T> span(std::size_t offset, std::size_t count) const {
    const std::size_t size = bytes();
    if (offset % alignof(T) != 0 || offset > size || count > (size - offset) / sizeof(T)) {
      throw cohort::error(errc::invalid_argument,
                          "a span of an nccl arena: offset=" + std::to_string(offset) + ", count=" +
                              std::to_string(count) + ", bytes=" + std::to_string(size));
    }
    if (size == 0) throw cohort::error(errc::invalid_argument, "a span of no nccl arena");
    auto* const at = static_cast<std::byte*>(handle_->state->memory) + offset;
    // Without a producer, and without asking CUDA, which knows nothing of an address at the end.
    return device::span<T>(reinterpret_cast<T*>(at), count, device());
  }

 private:
  struct handle {
    explicit handle(std::shared_ptr<detail::arena_state> its) noexcept : state(std::move(its)) {}
    handle(const handle&) = delete;
    ~handle() { detail::free_later(state); }
    std::shared_ptr<detail::arena_state> state;
  };
  std::shared_ptr<const handle> handle_;
};

/// Allocates `bytes` and registers them on all of `on`, which are communicators of one device.
/// `void(std::exception_ptr, arena)`.
///
/// Takes a place among the operations of the device, so it counts as one of them: start it on all
/// ranks in the same order. Operations before it end first, those behind it wait. The allocation
/// may wait for the device and happens on a thread; the loop goes on. It cannot be cancelled.
/// *Errors*: errc::not_supported before NCCL 2.19, errc::invalid_communicator for no communicator,
/// errc::wrong_device for those of several devices, errc::invalid_argument for no bytes,
/// errc::device_ordered while a coordinator holds the device,
/// errc::stalled after `init_bound`, the error of a communicator that has ended, category `nccl`.
/// *Example*: `auto memory = co_await cohort::nccl::make_arena(on, 1 << 20);`
template <class Token = default_token>
auto make_arena(const std::vector<communicator>& on, std::size_t bytes, Token&& token = Token());

namespace detail {

// NCCL 2.18 has none of these calls.
[[nodiscard]] inline bool has_arenas() noexcept {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
  return library_version() >= NCCL_VERSION(2, 19, 1);
#else
  return false;
#endif
}

/// See extra/arena.ipp.
progress::look_task<arena> make_arena(std::shared_ptr<arena_state> state,
                                      std::vector<std::shared_ptr<communicator_state>> comms,
                                      turn place);

struct start_arena {
  template <class Handler>
  void operator()(Handler&& handler, const std::vector<communicator>& on, std::size_t bytes) const {
    auto state = std::make_shared<arena_state>();
    std::vector<std::shared_ptr<communicator_state>> comms;
    std::error_code why;
    if (on.empty()) why = errc::invalid_communicator;
    for (const communicator& one : on) {
      if (!one) {
        why = errc::invalid_communicator;
        break;
      }
      if (one.device() != on.front().device()) why = errc::wrong_device;
      comms.push_back(one.state());
    }
    if (!why && bytes == 0) why = errc::invalid_argument;
    if (!why && !has_arenas()) why = errc::not_supported;
    for (const communicator& one : on) {
      if (why) break;
      const communicator_state& its = *one.state();
      if (!its.source.admits(its.device, its.orderer)) why = errc::device_ordered;
    }
    if (why) {
      auto failed = std::make_exception_ptr(std::system_error(why, "nccl make_arena"));
      return refuse(std::forward<Handler>(handler), std::move(failed), arena());
    }
    state->bytes = bytes;
    state->device = on.front().device();
    state->source = &comms.front()->source;
    state->make_bound = comms.front()->options.init_bound;
    state->free_bound = comms.front()->options.leave_bound;
    issue_source& source = *state->source;
    turn place = source.reserve(state->device);
    begin_for(std::forward<Handler>(handler), source, "nccl make_arena",
              make_arena(std::move(state), std::move(comms), std::move(place)), std::identity());
  }
};

}  // namespace detail

template <class Token>
auto make_arena(const std::vector<communicator>& on, std::size_t bytes, Token&& token) {
  return asio::async_initiate<Token, void(std::exception_ptr, arena)>(detail::start_arena{}, token,
                                                                      on, bytes);
}

}  // namespace cohort::nccl

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/nccl/extra/arena.ipp>
#endif

#endif
