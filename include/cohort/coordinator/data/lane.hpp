// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One chain of requests of an elected operation, with the memory of its pack, and the places
/// where operations run.

#include <cohort/collectives/bodies/adasum.hpp>
#include <cohort/comm/device_backend.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/coordinator/options.hpp>
#include <cohort/core/pack_layout.hpp>
#include <cohort/progress/operation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// Hands out buffers of host memory for packs, aligned to a cache line. It grows as it is used and
/// allocates nothing in the steady state: packs are at most as long as a buffer, and as many are
/// kept as were in use at once. Larger ones, for tensors that do not fit, are given back.
class fusion_allocator {
 public:
  static constexpr std::size_t alignment = packs::line;

  explicit fusion_allocator(std::size_t buffer_bytes) : buffer_bytes_(buffer_bytes) {}
  fusion_allocator(const fusion_allocator&) = delete;
  fusion_allocator& operator=(const fusion_allocator&) = delete;
  ~fusion_allocator() {
    for (std::byte* one : free_) release(one);
  }

  /// A buffer of the allocator's; gives itself back.
  class buffer {
   public:
    buffer() noexcept {}
    buffer(buffer&& other) noexcept
        : from_(std::exchange(other.from_, nullptr)), data_(other.data_), kept_(other.kept_) {}
    buffer& operator=(buffer other) noexcept {
      std::swap(from_, other.from_);
      std::swap(data_, other.data_);
      std::swap(kept_, other.kept_);
      return *this;
    }
    ~buffer() {
      if (from_ != nullptr) from_->give_back(data_, kept_);
    }
    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] explicit operator bool() const noexcept { return from_ != nullptr; }

   private:
    friend class fusion_allocator;
    buffer(fusion_allocator* from, std::byte* data, std::size_t kept) noexcept
        : from_(from), data_(data), kept_(kept) {}
    fusion_allocator* from_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t kept_ = 0;  // its bytes; 0 for one that is given back
  };

  /// Throws std::bad_alloc.
  [[nodiscard]] buffer take(std::size_t bytes) {
    const bool keep = bytes <= buffer_bytes_;
    if (keep && !free_.empty()) {
      std::byte* data = free_.back();
      free_.pop_back();
      return {this, data, buffer_bytes_};
    }
    if (keep) free_.reserve(kept_ + 1);  // so that giving back cannot fail
    auto* data = static_cast<std::byte*>(::operator new(
        std::max(keep ? buffer_bytes_ : bytes, std::size_t{1}), std::align_val_t(alignment)));
    kept_ += keep ? 1U : 0U;
    return {this, data, keep ? buffer_bytes_ : 0};
  }
  /// From now on buffers have at least so many bytes; smaller ones are not kept any more.
  void grow(std::size_t buffer_bytes) noexcept {
    if (buffer_bytes <= buffer_bytes_) return;
    buffer_bytes_ = buffer_bytes;
    for (std::byte* one : free_) release(one);
    kept_ -= free_.size();
    free_.clear();
  }
  /// Buffers that are kept, in use or not.
  [[nodiscard]] std::size_t kept() const noexcept { return kept_; }

 private:
  static void release(std::byte* data) noexcept {
    ::operator delete(data, std::align_val_t(alignment));
  }
  void give_back(std::byte* data, std::size_t bytes) noexcept {
    if (bytes == buffer_bytes_) return free_.push_back(data);
    kept_ -= bytes != 0 ? 1U : 0U;
    release(data);
  }

  std::size_t buffer_bytes_;
  std::size_t kept_ = 0;
  std::vector<std::byte*> free_;
};

/// What a buffer for packs has room for: with the ends of tensors at lines.
[[nodiscard]] inline std::size_t fusion_memory(const coordinator_options& options) noexcept {
  return static_cast<std::size_t>(options.fusion_buffer) + 64 * 1024;
}

template <class Any>
class basic_lane;
template <class Any>
class basic_execution;
template <class Any>
class basic_data_plane;
using lane = basic_lane<void>;
using execution = basic_execution<void>;
using data_plane = basic_data_plane<void>;

/// Where the operations of a set run: as which of its ranks, and on which communicators. `shared`
/// is for first parts and for operations posted whole, each slot for later parts of one.
struct set_place {
  std::uint32_t set = 0;  ///< its number in the log
  int rank = 0;
  int size = 1;
  MPI_Comm shared = MPI_COMM_NULL;
  std::vector<MPI_Comm> slots;
  mutable std::uint64_t adasums = 0;  ///< calls so far; counted in log order, as on all ranks
};

/// How far a pack has been filled or emptied.
struct pack_position {
  std::uint32_t tensor = 0;  ///< of the pack: the first that is not done
  std::size_t end = 0;       ///< where the one before it ends, in bytes
};

/// One chain of requests: it posts, and when MPI is done it posts again or ends. It frees itself
/// when the engine delivers it, so nobody need wait for that.
template <class Any>
class basic_lane final : public comm::request_operation, public comm::scattered_data {
 public:
  explicit basic_lane(basic_execution<Any>& of) noexcept : request_operation(&run), owner(&of) {
    advance_ = &advanced;
    advances_failed_ = true;
  }
  static void* operator new(std::size_t bytes) { return progress::pool::allocate(bytes); }
  static void operator delete(void* block) noexcept {
    progress::pool::deallocate(block, sizeof(basic_lane));
  }

  /// For a backend that packs itself.
  void lay(std::size_t offset, std::span<std::byte> to) noexcept override {
    owner->packs_.fill(owner->packs_.calls[call], laid, offset, to);
  }
  void take(std::size_t offset, std::span<const std::byte> from) noexcept override {
    owner->packs_.empty(owner->packs_.calls[call], taken, offset, from);
  }

  std::uint32_t call = 0;  ///< of the execution: what is under way
  bool on_device = false;  ///< a backend for devices has it, and MPI nothing
  fusion_allocator::buffer pack;
  struct adasum_part {
    fusion_allocator::buffer other;  ///< room for what a partner sends
    collectives::adasum_exchange exchange;
  };
  std::unique_ptr<adasum_part> adasum;  ///< null but for that

  using request_operation::waits_for_turn_;
  pack_position laid;
  pack_position taken;
  bool scattered = false;
  basic_execution<Any>* owner;  ///< null once it has ended
  static bool advanced(request_operation* base) {
    auto* self = static_cast<basic_lane*>(base);
    if (self->owner == nullptr) return false;
    const comm::request_source::guard hold(self->owner->plane_.state_->source);
    return self->owner->step(*self);
  }

 private:
  // A backend's completion arrives here; those of MPI have ended the lane before.
  static void run(operation* base, action what) {
    auto* self = static_cast<basic_lane*>(base);
    if (self->owner != nullptr && what != action::destroy) {
      const comm::request_source::guard hold(self->owner->plane_.state_->source);
      if (self->owner->step(*self)) return;
    } else if (self->owner != nullptr) {
      std::erase(self->owner->plane_.with_backend_, self);
      std::erase(self->owner->plane_.with_device_, self);
    }
    delete self;
  }
};

/// Sizes that ranks have told each other: those of one exchange.
struct size_vector {
  std::uint64_t log_count = 0;
  std::vector<std::int64_t> rows;
  bool large = false;  ///< on any rank the bytes may not fit an int, and MPI needs that
};

}  // namespace cohort::coordination
