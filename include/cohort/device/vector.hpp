// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::device::vector<T>`: owned device memory whose life is ordered with a stream, so that no
/// host waits when it is taken or given back.
///
/// \code
/// cohort::device::stream compute;
/// const std::vector<float> values(1000, 1.0F);
/// {
///   cohort::device::vector<float> copied(values.size(), compute);
///   co_await cohort::device::staged_copy(compute, values, copied);
///   // ... launch kernels on compute.get() that read copied.data() ...
/// }  // given back behind these kernels
/// \endcode

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/buffer.hpp>
#include <cohort/core/devices.hpp>
#include <cohort/device/memory.hpp>
#include <cohort/device/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

namespace cohort::device {

namespace detail {

/// Memory that is given back in the order of its stream, when its last holder goes.
struct stream_memory {
  explicit stream_memory(stream where) noexcept
      : on(std::move(where)), generation(state_of(on.device()).generation()) {}
  stream_memory(const stream_memory&) = delete;
  ~stream_memory();

  void* data = nullptr;
  stream on;
  std::uint32_t generation;
};

}  // namespace detail

/// `size()` elements of device memory, not initialised, of a fixed size.
///
/// It is taken and given back in the order of its stream, with `cudaMallocAsync` and
/// `cudaFreeAsync`. So neither waits for the device, and a vector may go while work that uses it is
/// queued on its stream, which it keeps by a handle; work on another stream must be ordered with
/// that one first (`stream::wait`). It is no range: host code has nothing to read there.
template <class T>
class vector {
  static_assert(std::is_trivially_copyable_v<T>, "device memory holds trivially copyable types");

 public:
  using value_type = T;

  /// Of nothing, on no stream.
  vector() noexcept {}
  /// On a stream of its own, on the default device.
  explicit vector(std::size_t size) : vector(size, stream()) {}
  /// Throws std::system_error with CUDA's code, error(errc::no_device).
  vector(std::size_t size, stream on);
  /// Taken in the order of another stream, for which `on` waits, unless that is being captured.
  vector(std::size_t size, stream on, const stream& taken_on);
  vector(vector&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        memory_(std::move(other.memory_)) {}
  vector& operator=(vector&& other) noexcept {
    vector taken(std::move(other));
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    std::swap(memory_, taken.memory_);
    return *this;
  }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] int device() const noexcept { return memory_ ? memory_->on.device() : -1; }
  /// The stream that its life is ordered with. Not of a default-constructed or moved-from vector.
  [[nodiscard]] const stream& producer() const noexcept { return memory_->on; }
  /// Keeps the memory when the vector goes: for operations that still use it. Before the last one
  /// is dropped, the vector's stream must be ordered with what uses the memory.
  [[nodiscard]] std::shared_ptr<const void> lease() const noexcept { return memory_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::shared_ptr<detail::stream_memory> memory_;
};

inline detail::stream_memory::~stream_memory() {
  // Where it has gone, or the device is lost or hangs, nothing is freed.
  if (data == nullptr || !state_of(on.device()).may_free(generation)) return;
  // The default streams are those of the current device.
  int before = on.device();
  const bool elsewhere = is_default_stream(on.get()) && cudaGetDevice(&before) == cudaSuccess &&
                         before != on.device() && cudaSetDevice(on.device()) == cudaSuccess;
  const cudaError_t code = cudaFreeAsync(data, on.get());
  if (elsewhere) static_cast<void>(cudaSetDevice(before));
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  note(code, on.device(), generation);
}

template <class T>
vector<T>::vector(std::size_t size, stream on) : vector(size, on, on) {}

template <class T>
vector<T>::vector(std::size_t size, stream on, const stream& taken_on) {
  const int device = on.device();
  if (size > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
    throw error(errc::count_too_large, "a device vector of so many elements");
  }
  check_usable(device);
  auto made = std::make_shared<detail::stream_memory>(std::move(on));
  if (size != 0) {
    const scoped_device here(device);
    // Memory belongs to one device.
    const stream& first = taken_on.device() == device ? taken_on : made->on;
    check(cudaMallocAsync(&made->data, size * sizeof(T), first.get()), "cudaMallocAsync", device);
    if (first != made->on) static_cast<void>(made->on.try_wait(first.record()));
    data_ = static_cast<T*>(made->data);
  }
  size_ = size;
  memory_ = std::move(made);
}

}  // namespace cohort::device

template <class T>
struct cohort::memory_traits<cohort::device::vector<T>> {
  using result = device::vector<T>;
  static constexpr memory_space space = memory_space::device;
  static memory_location locate(const device::vector<T>& buffer) noexcept {
    return {space, buffer.device(), buffer.device() < 0 ? nullptr : buffer.producer().get()};
  }
  static std::shared_ptr<const void> lease(const device::vector<T>& buffer) noexcept {
    return buffer.lease();
  }
  static result make(std::size_t count, const device::vector<T>& like) {
    return like.device() < 0 ? result(count) : result(count, like.producer());
  }
  static result make(std::size_t count, const device::vector<T>& like, const stream_ref& taken_on) {
    const auto from = device::named_stream(taken_on.native, taken_on.device);
    if (like.device() >= 0) return result(count, like.producer(), from);
    return result(count, device::stream(device::stream_options{.device = from.device()}), from);
  }
};

#endif
