// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::nccl::fusion_arena`: memory in which a coordinator reduces without copies.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/backend.hpp>
#include <cohort/comm/device_backend.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/pack_layout.hpp>
#include <cohort/device/span.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/nccl/extra/arena.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::nccl {

class fusion_memory;

/// The arenas of one coordinator that are alive on this rank. Arenas may outlive the coordinator.
class fusion_table {
 public:
  void add(const std::shared_ptr<fusion_memory>& one);
  void remove(const fusion_memory& one) noexcept;
  /// The one that an address lies in, or null.
  [[nodiscard]] std::shared_ptr<fusion_memory> find(const void* data) const;
  [[nodiscard]] std::vector<std::shared_ptr<fusion_memory>> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::weak_ptr<fusion_memory>, std::less<>> by_address_;
};

/// With its last share the memory is given back, in the background, when what was started on the
/// device before has ended.
class fusion_memory final : public comm::device_arena {
 public:
  fusion_memory(std::shared_ptr<fusion_table> table, issue_source& source, int on_device);
  inline ~fusion_memory() override;

  void use() override { in_use_ = true; }
  /// Operations may read and write it without copies: all ranks have it, and registered.
  [[nodiscard]] bool in_use() const noexcept { return in_use_ && registered; }
  [[nodiscard]] detail::arena_state& state() const noexcept { return *state_; }

  /// The offset of so many bytes that nobody uses yet; none if there are not so many left.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t wanted);
  [[nodiscard]] std::size_t taken() const;
  [[nodiscard]] comm::arena_place place_of(const void* data, std::size_t size) const;

 private:
  struct part {
    std::size_t begin;
    std::size_t end;
  };
  /// Where the next part would begin, of so many bytes.
  [[nodiscard]] std::size_t next(std::size_t wanted) const noexcept {
    if (parts_.empty()) return 0;
    return packs::begin_behind(parts_.back().end, wanted, packs::spacing::wide);
  }
  std::shared_ptr<fusion_table> table_;
  std::shared_ptr<detail::arena_state> state_;
  std::atomic<bool> in_use_{false};
  mutable std::mutex mutex_;
  std::vector<part> parts_;  // ascending
};

// ---- implementation --------------------------------------------------------------------------

inline void fusion_table::add(const std::shared_ptr<fusion_memory>& one) {
  const std::lock_guard hold(mutex_);
  by_address_[static_cast<const std::byte*>(one->memory)] = one;
}

inline void fusion_table::remove(const fusion_memory& one) noexcept {
  const std::lock_guard hold(mutex_);
  const auto known = by_address_.find(static_cast<const std::byte*>(one.memory));
  if (known != by_address_.end() && known->second.expired()) by_address_.erase(known);
}

inline std::shared_ptr<fusion_memory> fusion_table::find(const void* data) const {
  std::shared_ptr<fusion_memory> one;  // if it is the last share, it goes without the lock
  {
    const std::lock_guard hold(mutex_);
    auto next = by_address_.upper_bound(static_cast<const std::byte*>(data));
    if (next == by_address_.begin()) return nullptr;
    one = std::prev(next)->second.lock();
  }
  if (!one) return nullptr;
  const auto* const end = static_cast<const std::byte*>(one->memory) + one->bytes;
  return std::less<>()(static_cast<const std::byte*>(data), end) ? one : nullptr;
}

inline std::vector<std::shared_ptr<fusion_memory>> fusion_table::all() const {
  std::vector<std::shared_ptr<fusion_memory>> alive;
  const std::lock_guard hold(mutex_);
  alive.reserve(by_address_.size());
  for (const auto& [address, each] : by_address_) {
    if (auto one = each.lock()) alive.push_back(std::move(one));
  }
  return alive;
}

inline fusion_memory::fusion_memory(std::shared_ptr<fusion_table> table, issue_source& source,
                                    int on_device)
    : table_(std::move(table)), state_(std::make_shared<detail::arena_state>()) {
  device = on_device;
  state_->source = &source;
  state_->device = on_device;
}

// It may go in a lap, with locks held.
inline fusion_memory::~fusion_memory() {
  if (memory == nullptr) return;
  table_->remove(*this);
  progress::engine& engine = state_->source->engine();
  if (engine.stopped()) return;
  try {
    asio::post(engine.get_executor(), [its = std::move(state_)] { detail::free_later(its); });
  } catch (const std::exception& why) {
    log::write(log::level::error, std::string("a fusion arena is leaked: ") + why.what());
  }
}

inline std::optional<std::size_t> fusion_memory::take(std::size_t wanted) {
  const std::lock_guard hold(mutex_);
  const std::size_t begin = next(wanted);
  if (begin > bytes || wanted > bytes - begin) return std::nullopt;
  parts_.push_back({begin, begin + wanted});
  return begin;
}

inline std::size_t fusion_memory::taken() const {
  const std::lock_guard hold(mutex_);
  return std::min(next(0), bytes);
}

inline comm::arena_place fusion_memory::place_of(const void* data, std::size_t size) const {
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(data) -
                                               static_cast<std::byte*>(memory));
  if (size > bytes - offset) return {};
  const std::lock_guard hold(mutex_);
  const auto behind =
      std::upper_bound(parts_.begin(), parts_.end(), offset,
                       [](std::size_t at, const part& each) { return at < each.begin; });
  const bool padded = behind != parts_.begin() && std::prev(behind)->end == offset + size;
  return {number, offset, padded};
}

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
  static_assert(alignof(T) <= packs::line);
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
struct arena_result {
  int rank = 0;
  bool made = false;
  bool registered = false;
  std::string text;
};

// 1. Elected: each rank allocates, and registers on its communicators. What fails there is a fact.
// 2. The ranks tell each other these facts, so that all have the arena or none.
//
// Both are named operations, which the ranks start, cancel and match like those of users, and which
// end in handlers. A look task cannot wait for these, so it is a coroutine of the loop.
template <class Coordinator>
asio::awaitable<fusion_arena> make_fusion_arena(Coordinator coord, std::size_t bytes) {
  co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
  auto adding = coord.add_arena(bytes, default_token());
  std::shared_ptr<comm::device_arena> made = co_await std::move(adding);
  auto memory = std::static_pointer_cast<fusion_memory>(std::move(made));
  co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
  const arena_result mine{coord.rank(), !memory->failed, memory->registered, memory->text};
  const std::string name = "nccl::fusion_arena " + std::to_string(memory->number);
  auto gathering = coord.all_gather_object(name, mine, default_token());
  const std::vector<arena_result> all = co_await std::move(gathering);
  std::vector<int> ranks;
  std::string text;
  int next = 0;
  const auto note = [&](int rank, const std::string& why) {
    ranks.push_back(rank);
    text +=
        (text.empty() ? "no fusion arena: rank " : "; rank ") + std::to_string(rank) + ": " + why;
  };
  bool registered = true;
  for (const arena_result& each : all) {
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
