// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The memory of a \ref fusion_arena, and what a coordinator's backend knows of all of them.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/nccl/arena.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace cohort::nccl {

class fusion_memory;

namespace detail {

/// Where tensors lie in a pack, and in an arena: at multiples of what NCCL likes, and of every
/// element.
inline constexpr std::size_t pack_alignment = 64;
[[nodiscard]] constexpr std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + pack_alignment - 1) / pack_alignment * pack_alignment;
}

}  // namespace detail

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
  ~fusion_memory() override;

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
  const std::size_t begin = parts_.empty() ? 0 : detail::aligned(parts_.back().end);
  if (begin > bytes || wanted > bytes - begin) return std::nullopt;
  parts_.push_back({begin, begin + wanted});
  return begin;
}

inline std::size_t fusion_memory::taken() const {
  const std::lock_guard hold(mutex_);
  return parts_.empty() ? 0 : std::min(detail::aligned(parts_.back().end), bytes);
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

}  // namespace cohort::nccl

#endif
