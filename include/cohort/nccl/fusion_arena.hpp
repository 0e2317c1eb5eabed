// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::nccl::fusion_arena`: memory in which a coordinator reduces without copies.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/asio.hpp>
#include <cohort/device/span.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/nccl/fusion_memory.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace cohort::nccl {

/// Device memory of one coordinator, from `ncclMemAlloc`, registered on its communicator and on
/// those of its process sets, also of sets that are made later. A handle: copies are the same
/// memory.
///
/// Tensors of all_reduce in place and of broadcast that are elected together, and lie side by side
/// in the arena, in whatever order, are not packed: one call of NCCL works on them where they are.
/// Where they lie is part of what must be equal on all ranks, so allocate the same parts in the
/// same order everywhere; otherwise every rank gets mismatch_error for "place in a fusion arena".
/// What lies there and cannot go that way (other tensors between, another type or reduction,
/// factors that the host applies, a rank that has joined, other verbs) is copied as other memory
/// is.
///
/// The memory stays as long as a handle, an operation or a persistent group that uses it. Then it
/// is given back in the background, when what was started on the device before has ended. It may
/// outlive the coordinator, but not the context.
class fusion_arena {
 public:
  /// Of nothing.
  fusion_arena() noexcept {}
  explicit fusion_arena(std::shared_ptr<fusion_memory> memory) noexcept
      : memory_(std::move(memory)) {}

  [[nodiscard]] explicit operator bool() const noexcept { return memory_ != nullptr; }
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_ ? memory_->bytes : 0; }
  /// Of them allocated, with what lies between.
  [[nodiscard]] std::size_t allocated() const { return memory_ ? memory_->taken() : 0; }
  [[nodiscard]] int device() const noexcept { return memory_ ? memory_->device : -1; }
  /// The same on all ranks. False before NCCL 2.19, and under a hierarchical backend: there it is
  /// memory like other, and packed.
  [[nodiscard]] bool registered() const noexcept { return memory_ && memory_->registered; }

  /// The next `count` elements, from a multiple of 64 bytes on. Nothing is given back before the
  /// whole is; the content is not defined. `producer` is the stream that writes them. Throws
  /// error(errc::invalid_argument) where not so much is left.
  template <class T>
  [[nodiscard]] device::span<T> allocate(std::size_t count, const device::stream& producer) const {
    return {take<T>(count), count, producer};
  }
  /// Without a producer: operations name a stream, or come after what has been waited for.
  template <class T>
  [[nodiscard]] device::span<T> allocate(std::size_t count) const {
    return {take<T>(count), count, device()};
  }

 private:
  template <class T>
  [[nodiscard]] T* take(std::size_t count) const;

  std::shared_ptr<fusion_memory> memory_;
};

/// Makes an arena of `bytes` for a coordinator with \ref backend.
/// `void(std::exception_ptr, fusion_arena)`.
///
/// *Collective over* the coordinator: elected like any operation, so the ranks may call it whenever
/// they like; the n-th arena of a rank is the n-th of the others. It is made when what was elected
/// before has ended on the device, and what is elected later waits; the allocation happens on a
/// thread. *Requires* equal `bytes` on all ranks, otherwise mismatch_error. *Cancellation*: until
/// it is elected. *Errors*: those of named operations; errc::invalid_argument for no bytes;
/// errc::not_supported without a backend for devices; rank_error with errc::aborted, the same on
/// all ranks, if some rank could not allocate or register it.
/// *Example*: `auto arena = co_await cohort::nccl::make_fusion_arena(coord, 64 << 20);`
template <class Coordinator, class Token = default_token>
auto make_fusion_arena(const Coordinator& coord, std::size_t bytes, Token&& token = Token());

// ---- implementation --------------------------------------------------------------------------

template <class T>
T* fusion_arena::take(std::size_t count) const {
  static_assert(alignof(T) <= detail::pack_alignment);
  const std::size_t left = bytes() - allocated();
  if (count <= left / sizeof(T) && memory_) {
    if (const auto offset = memory_->take(count * sizeof(T))) {
      return reinterpret_cast<T*>(static_cast<std::byte*>(memory_->memory) + *offset);
    }
  }
  throw cohort::error(errc::invalid_argument, "a fusion arena of " + std::to_string(bytes()) +
                                                  " bytes has " + std::to_string(left) +
                                                  " left, not " + std::to_string(count) +
                                                  " elements of " + std::to_string(sizeof(T)));
}

namespace detail {

/// How it went on a rank.
struct arena_verdict {
  int rank = 0;
  bool made = false;
  bool registered = false;
  std::string text;
};

// 1. Elected: each rank allocates, and registers on its communicators. What fails there is a fact.
// 2. The ranks tell each other these facts, so that all have the arena or none.
template <class Coordinator>
asio::awaitable<fusion_arena> make_fusion_arena(Coordinator coord, std::size_t bytes) {
  co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
  auto adding = coord.add_arena(bytes, default_token());
  std::shared_ptr<comm::device_arena> made = co_await std::move(adding);
  auto memory = std::static_pointer_cast<fusion_memory>(std::move(made));
  co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
  const arena_verdict mine{coord.rank(), !memory->failed, memory->registered, memory->text};
  const std::string name = "nccl::fusion_arena " + std::to_string(memory->number);
  auto telling = coord.all_gather_object(name, mine, default_token());
  const std::vector<arena_verdict> all = co_await std::move(telling);
  std::vector<int> ranks;
  std::string text;
  int next = 0;
  const auto note = [&](int rank, const std::string& why) {
    ranks.push_back(rank);
    text +=
        (text.empty() ? "no fusion arena: rank " : "; rank ") + std::to_string(rank) + ": " + why;
  };
  bool registered = true;
  for (const arena_verdict& each : all) {
    for (; next < each.rank; ++next) note(next, "it has joined");
    if (!each.made) note(each.rank, each.text);
    registered = registered && each.registered;
    next = each.rank + 1;
  }
  for (; next < coord.size(); ++next) note(next, "it has joined");
  if (!ranks.empty()) throw rank_error(errc::aborted, ranks, text);
  memory->registered = registered;
  memory->use();
  co_return fusion_arena(std::move(memory));
}

struct start_fusion_arena {
  template <class Handler, class Coordinator>
  void operator()(Handler&& handler, const Coordinator& coord, std::size_t bytes) const {
    asio::co_spawn(coord.get_executor(), detail::make_fusion_arena(coord, bytes),
                   std::forward<Handler>(handler));
  }
};

}  // namespace detail

template <class Coordinator, class Token>
auto make_fusion_arena(const Coordinator& coord, std::size_t bytes, Token&& token) {
  return asio::async_initiate<Token, void(std::exception_ptr, fusion_arena)>(
      detail::start_fusion_arena{}, token, coord, bytes);
}

}  // namespace cohort::nccl

#endif
