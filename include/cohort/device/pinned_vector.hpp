// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::device::pinned_vector<T>`: host memory that a device copies from and to by itself.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/buffer.hpp>
#include <cohort/device/stream.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::device {

/// Page-locked blocks that are kept for use again, because taking and giving one back to CUDA may
/// wait for whatever the device does, a collective that waits for a peer say. Blocks are rounded up
/// to powers of two. One per process; every function from any thread.
class pinned_pool {
 public:
  struct block {
    void* memory = nullptr;
    std::size_t bytes = 0;
    int device = -1;
    std::uint32_t generation = 0;
  };

  /// At least `bytes`, from the pool if a block there is out of use. Otherwise it calls
  /// `cudaHostAlloc`, which may wait for the device.
  [[nodiscard]] inline block take(std::size_t bytes, int device);
  /// The same, but nothing if the pool has none. Never blocks.
  [[nodiscard]] inline std::optional<block> find(std::size_t bytes, int device);
  /// Back into the pool, to be used again once the device has reached `used`. Never blocks.
  inline void retire(block what, event&& used) noexcept;
  /// Gives what is out of use back to CUDA, but not where frees are off (device_state). May wait
  /// for the device. Returns how many blocks.
  inline std::size_t trim();
  /// Blocks in the pool, in use or out of it.
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard hold(mutex_);
    return kept_.size();
  }

  [[nodiscard]] static pinned_pool& of_process() {
    static pinned_pool& instance = *new pinned_pool;  // vectors may be static objects
    return instance;
  }

 private:
  struct kept_block {
    block what;
    event used;  // empty: out of use
  };
  static std::size_t rounded(std::size_t bytes) noexcept {
    constexpr std::size_t smallest = 4096;
    return std::bit_ceil(bytes < smallest ? smallest : bytes);
  }
  /// Drops those that have gone with their device's context.
  inline void forget_gone();
  static bool is_free(const kept_block& one) noexcept {
    return !one.used.valid() || one.used.query() == cudaSuccess;
  }

  mutable std::mutex mutex_;
  std::vector<kept_block> kept_;
};

/// `size()` elements of pinned host memory, not initialised, of a fixed size.
///
/// A contiguous range like any other for host code and MPI. Its life is ordered with a stream: it
/// may go while copies on that stream still use it. Where the memory comes from, see pinned_pool.
template <class T>
class pinned_vector {
  static_assert(std::is_trivially_copyable_v<T>, "pinned memory holds trivially copyable types");

 public:
  using value_type = T;

  /// Of nothing, on no stream.
  pinned_vector() noexcept {}
  /// On a stream of its own, on the default device.
  explicit pinned_vector(std::size_t size) : pinned_vector(size, stream()) {}
  /// Throws std::system_error with CUDA's code, error(errc::no_device).
  pinned_vector(std::size_t size, stream on);
  /// Over a block of the pool, of at least `size` elements, on the device of `on`.
  pinned_vector(pinned_pool::block from_pool, std::size_t size, stream on) noexcept
      : block_(from_pool), size_(size), on_(std::move(on)) {}
  pinned_vector(pinned_vector&& other) noexcept
      : block_(std::exchange(other.block_, pinned_pool::block())),
        size_(std::exchange(other.size_, 0)),
        on_(std::exchange(other.on_, std::nullopt)) {}
  pinned_vector& operator=(pinned_vector&& other) noexcept {
    pinned_vector taken(std::move(other));
    std::swap(block_, taken.block_);
    std::swap(size_, taken.size_);
    std::swap(on_, taken.on_);
    return *this;
  }
  ~pinned_vector();

  [[nodiscard]] T* data() noexcept { return static_cast<T*>(block_.memory); }
  [[nodiscard]] const T* data() const noexcept { return static_cast<const T*>(block_.memory); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] T* begin() noexcept { return data(); }
  [[nodiscard]] T* end() noexcept { return data() + size_; }
  [[nodiscard]] const T* begin() const noexcept { return data(); }
  [[nodiscard]] const T* end() const noexcept { return data() + size_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data()[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data()[i]; }

 private:
  pinned_pool::block block_;
  std::size_t size_ = 0;
  std::optional<stream> on_;
};

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

/// A block for code that goes on in looks, where no handler is run: found in the pool, or asked for
/// by a thread. This object may go before the block comes, which then goes into the pool.
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
  /// The block, once it has come. Throws the reason if there is none.
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

inline std::optional<pinned_pool::block> pinned_pool::find(std::size_t bytes, int device) {
  const std::size_t wanted = rounded(bytes);
  const detail::relaxed_capture may_ask;
  const std::lock_guard hold(mutex_);
  forget_gone();
  for (kept_block& one : kept_) {
    if (one.what.bytes != wanted || one.what.device != device || !is_free(one)) continue;
    const block found = one.what;
    std::swap(one, kept_.back());
    kept_.pop_back();
    return found;
  }
  return std::nullopt;
}

inline pinned_pool::block pinned_pool::take(std::size_t bytes, int device) {
  if (const auto found = find(bytes, device)) return *found;
  check_usable(device);
  const scoped_device here(device);
  const detail::relaxed_capture may_ask;
  block made{nullptr, rounded(bytes), device, state_of(device).generation()};
  check(cudaHostAlloc(&made.memory, made.bytes, cudaHostAllocPortable), "cudaHostAlloc", device);
  return made;
}

inline void pinned_pool::retire(block what, event&& used) noexcept {
  if (!state_of(what.device).holds(what.generation)) return;
  try {
    const std::lock_guard hold(mutex_);
    kept_.push_back({what, std::move(used)});
  } catch (...) {  // no memory: the block is leaked, for giving it back might block
  }
}

inline std::size_t pinned_pool::trim() {
  const detail::relaxed_capture may_ask;
  std::vector<kept_block> idle;
  {
    const std::lock_guard hold(mutex_);
    forget_gone();
    std::vector<kept_block> busy;
    for (kept_block& one : kept_) {
      const bool may_go = state_of(one.what.device).may_free(one.what.generation);
      (may_go && is_free(one) ? idle : busy).push_back(std::move(one));
    }
    kept_ = std::move(busy);
  }
  for (const kept_block& one : idle) {
    const scoped_device here(one.what.device);
    check(cudaFreeHost(one.what.memory), "cudaFreeHost", one.what.device);
  }
  return idle.size();
}

inline void pinned_pool::forget_gone() {
  std::erase_if(kept_, [](const kept_block& one) {
    return !state_of(one.what.device).holds(one.what.generation);
  });
}

template <class T>
pinned_vector<T>::pinned_vector(std::size_t size, stream on) {
  if (size > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) {
    throw error(errc::count_too_large, "a pinned vector of so many elements");
  }
  if (size != 0) block_ = pinned_pool::of_process().take(size * sizeof(T), on.device());
  size_ = size;
  on_.emplace(std::move(on));
}

template <class T>
pinned_vector<T>::~pinned_vector() {
  if (block_.memory == nullptr || !state_of(block_.device).holds(block_.generation)) return;
  try {
    pinned_pool::of_process().retire(block_, on_->record());
  } catch (
      ...) {  // a device that fails, or a stream in capture: then nobody can say when it is free
  }
}

}  // namespace cohort::device

template <class T>
struct cohort::memory_traits<cohort::device::pinned_vector<T>> {
  static constexpr memory_space space = memory_space::pinned;
  static memory_location locate(const device::pinned_vector<T>&) noexcept {
    return {space, -1, nullptr};
  }
};

#endif
