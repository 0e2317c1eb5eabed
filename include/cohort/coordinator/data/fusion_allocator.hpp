// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Memory for packs: handed out, given back and used again.

#include <cohort/core/pack_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
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
        : from_(std::exchange(other.from_, nullptr)), data_(other.data_), keep_(other.keep_) {}
    buffer& operator=(buffer other) noexcept {
      std::swap(from_, other.from_);
      std::swap(data_, other.data_);
      std::swap(keep_, other.keep_);
      return *this;
    }
    ~buffer() {
      if (from_ != nullptr) from_->give_back(data_, keep_);
    }
    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] explicit operator bool() const noexcept { return from_ != nullptr; }

   private:
    friend class fusion_allocator;
    buffer(fusion_allocator* from, std::byte* data, bool keep) noexcept
        : from_(from), data_(data), keep_(keep) {}
    fusion_allocator* from_ = nullptr;
    std::byte* data_ = nullptr;
    bool keep_ = false;
  };

  /// Throws std::bad_alloc.
  [[nodiscard]] buffer take(std::size_t bytes) {
    const bool keep = bytes <= buffer_bytes_;
    if (keep && !free_.empty()) {
      std::byte* data = free_.back();
      free_.pop_back();
      return {this, data, true};
    }
    if (keep) free_.reserve(kept_ + 1);  // so that giving back cannot fail
    auto* data = static_cast<std::byte*>(::operator new(
        std::max(keep ? buffer_bytes_ : bytes, std::size_t{1}), std::align_val_t(alignment)));
    kept_ += keep ? 1U : 0U;
    return {this, data, keep};
  }
  /// Buffers that are kept, in use or not.
  [[nodiscard]] std::size_t kept() const noexcept { return kept_; }

 private:
  static void release(std::byte* data) noexcept {
    ::operator delete(data, std::align_val_t(alignment));
  }
  void give_back(std::byte* data, bool keep) noexcept {
    if (keep) {
      free_.push_back(data);
    } else {
      release(data);
    }
  }

  std::size_t buffer_bytes_;
  std::size_t kept_ = 0;
  std::vector<std::byte*> free_;
};

}  // namespace cohort::coordination
