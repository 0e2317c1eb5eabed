// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A block of the pool of pinned memory: one that is there, and one that is asked for.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/pinned_vector.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

namespace cohort::device {

/// A block that goes back into the pool unless somebody takes it over.
class pooled_block {
 public:
  pooled_block() noexcept {}
  explicit pooled_block(pinned_pool::block what) noexcept : what_(what) {}
  pooled_block(pooled_block&& other) noexcept
      : what_(std::exchange(other.what_, pinned_pool::block())) {}
  pooled_block& operator=(pooled_block&& other) noexcept {
    std::swap(what_, other.what_);
    return *this;
  }
  ~pooled_block() {
    if (what_.memory != nullptr) pinned_pool::of_process().retire(what_, event());
  }
  [[nodiscard]] pinned_pool::block release() noexcept {
    return std::exchange(what_, pinned_pool::block());
  }

 private:
  pinned_pool::block what_;
};

/// A block for looks, in which no handler is run: found in the pool, or asked for by a thread. Who
/// does not want it any more goes, and the block goes into the pool when it comes.
class polled_block {
 public:
  /// Throws std::system_error if the process cannot have one more thread.
  polled_block(std::size_t bytes, int device) {
    if (auto found = pinned_pool::of_process().find(bytes, device)) {
      call_->block = pooled_block(*found);
      call_->done.store(true, std::memory_order_relaxed);
      return;
    }
    std::thread([call = call_, bytes, device] {
      try {
        call->block = pooled_block(pinned_pool::of_process().take(bytes, device));
      } catch (...) {
        call->failed = std::current_exception();
      }
      call->done.store(true, std::memory_order_release);
    }).detach();
  }
  [[nodiscard]] bool has_come() const noexcept {
    return call_->done.load(std::memory_order_acquire);
  }
  /// When it has come. Throws why there is none.
  [[nodiscard]] pooled_block take() {
    if (call_->failed) std::rethrow_exception(std::move(call_->failed));
    return std::move(call_->block);
  }

 private:
  struct asked_for {
    std::atomic<bool> done{false};
    pooled_block block;
    std::exception_ptr failed;
  };
  std::shared_ptr<asked_for> call_ = std::make_shared<asked_for>();
};

}  // namespace cohort::device

#endif
