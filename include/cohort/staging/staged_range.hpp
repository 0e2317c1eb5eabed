// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A buffer in device memory as MPI sees it: pinned memory, or the device's own.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/buffer.hpp>
#include <cohort/device/pinned_vector.hpp>
#include <cohort/device/span.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/device/vector.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::staging {

/// One buffer of an operation.
struct stage {
  const char* field = "";  ///< for reports
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  memory_location where;
  std::shared_ptr<const void> lease;  ///< keeps the memory; null: borrowed
  bool is_read = false;               ///< what lies there goes to the host
  bool is_written = false;            ///< the result goes to the device
  bool direct = false;                ///< MPI is given `data`
  device::pinned_vector<std::byte> memory;

  ~stage() {
    if (is_lent_) device::state_of(where.device).take_back();
  }
  /// MPI has it until this object goes. Throws error(errc::device_ordered) where NCCL launches.
  void lend() {
    device::device_state& its = device::state_of(where.device);
    its.lend();
    is_lent_ = true;
    if (!its.has_launcher()) return;
    throw error(errc::device_ordered, "NCCL works on device " + std::to_string(where.device));
  }

  [[nodiscard]] bool is_empty() const noexcept { return bytes == 0; }
  /// Where its copies go: the stream that writes the buffer, or one of their own.
  [[nodiscard]] device::stream stream() const {
    if (where.producer == nullptr) {
      return device::stream(device::stream_options{.device = where.device});
    }
    auto* const native = static_cast<cudaStream_t>(const_cast<void*>(where.producer));
    return device::stream::borrow(native, where.device);
  }

 private:
  bool is_lent_ = false;
};

template <class B>
[[nodiscard]] std::shared_ptr<stage> stage_of(const B& buffer, const char* field, const void* data,
                                              std::size_t bytes) {
  auto made = std::make_shared<stage>();
  made->field = field;
  made->data = static_cast<std::byte*>(const_cast<void*>(data));
  made->bytes = bytes;
  made->where = memory_traits<B>::locate(buffer);
  made->lease = memory_traits<B>::lease(buffer);
  return made;
}

/// What a verb of MPI is given for a device buffer of T: a container that it owns, and whose memory
/// is looked for when it is posted. `Owner` is the device vector, where the caller has moved one
/// in.
template <class T, class Owner = void>
class staged_range {
 public:
  using value_type = T;
  using owner_type = Owner;

  staged_range() noexcept {}
  staged_range(std::shared_ptr<stage> of, std::size_t size) noexcept
      : of_(std::move(of)), size_(size) {}
  template <class Moved>
  staged_range(std::shared_ptr<stage> of, std::size_t size, Moved&& owner) noexcept
      : of_(std::move(of)), size_(size), owner_(std::forward<Moved>(owner)) {}
  staged_range(staged_range&& other) noexcept
      : of_(std::move(other.of_)),
        size_(std::exchange(other.size_, 0)),
        owner_(std::move(other.owner_)) {}
  staged_range& operator=(staged_range&& other) noexcept {
    of_ = std::move(other.of_);
    size_ = std::exchange(other.size_, 0);
    owner_ = std::move(other.owner_);
    return *this;
  }

  [[nodiscard]] T* data() noexcept { return where(); }
  [[nodiscard]] const T* data() const noexcept { return where(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T* begin() noexcept { return where(); }
  [[nodiscard]] T* end() noexcept { return where() + size_; }
  [[nodiscard]] const T* begin() const noexcept { return where(); }
  [[nodiscard]] const T* end() const noexcept { return where() + size_; }

  /// What the caller gets back.
  [[nodiscard]] auto take() {
    if constexpr (std::is_void_v<Owner>) {
      return std::tuple<>();
    } else {
      return std::tuple<Owner>(std::move(owner_));
    }
  }

 private:
  struct nobody {};
  [[nodiscard]] T* where() const noexcept {
    if (!of_) return nullptr;
    std::byte* const at = of_->direct ? of_->data : of_->memory.data();
    return reinterpret_cast<T*>(at);
  }

  std::shared_ptr<stage> of_;
  std::size_t size_ = 0;
  std::conditional_t<std::is_void_v<Owner>, nobody, Owner> owner_;
};

template <class>
inline constexpr bool is_staged = false;
template <class T, class Owner>
inline constexpr bool is_staged<staged_range<T, Owner>> = true;

}  // namespace cohort::staging

#endif
