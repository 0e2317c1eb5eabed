// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::device::span<T>`: borrowed device memory, and the stream that works on it.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/memory.hpp>
#include <cohort/device/vector.hpp>

#include <cstddef>
#include <type_traits>

namespace cohort::device {

/// A view of device or managed memory that somebody else owns. Trivially copyable.
///
/// It knows its device, and its producer if it was given one: the stream whose queued work must
/// come before anybody uses the memory. The producer is borrowed, so it must live as long as the
/// span.
template <class T>
class span {
  static_assert(std::is_trivially_copyable_v<T>, "device memory holds trivially copyable types");

 public:
  using element_type = T;
  using value_type = std::remove_const_t<T>;

  /// Asks CUDA where the memory is. Throws error(errc::invalid_argument) if that is on the host.
  span(T* data, std::size_t size);
  /// On the device of the stream, which is not checked; `producer` is where it is written.
  span(T* data, std::size_t size, const stream& producer) noexcept
      : data_(data), size_(size), device_(producer.device()), producer_(producer.get()) {}
  /// On that device, which is not checked, and without a producer.
  span(T* data, std::size_t size, int device) noexcept
      : data_(data), size_(size), device_(device) {}
  span(vector<value_type>& all) noexcept  // NOLINT: converting, as std::span does
      : data_(all.data()), size_(all.size()), device_(all.device()), producer_(producer_of(all)) {}
  span(const vector<value_type>& all) noexcept  // NOLINT: the same
    requires std::is_const_v<T>
      : data_(all.data()), size_(all.size()), device_(all.device()), producer_(producer_of(all)) {}
  template <class U, class = std::enable_if_t<std::is_same_v<const U, T>>>
  span(const span<U>& other) noexcept  // NOLINT: the same
      : data_(other.data()),
        size_(other.size()),
        device_(other.device()),
        producer_(other.producer()) {}

  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] int device() const noexcept { return device_; }
  /// Null where none is known.
  [[nodiscard]] cudaStream_t producer() const noexcept { return producer_; }

  /// `count` elements from `offset` on. Throws error(errc::invalid_argument) beyond the end.
  [[nodiscard]] span subspan(std::size_t offset, std::size_t count) const {
    if (offset > size_ || count > size_ - offset) {
      throw error(errc::invalid_argument, "a part of a span beyond its end");
    }
    span part(*this);
    part.data_ += offset;
    part.size_ = count;
    return part;
  }

 private:
  static cudaStream_t producer_of(const vector<value_type>& all) noexcept {
    return all.device() < 0 ? nullptr : all.producer().get();
  }

  T* data_;
  std::size_t size_;
  int device_ = -1;
  cudaStream_t producer_ = nullptr;
};

template <class T>
span(vector<T>&) -> span<T>;
template <class T>
span(const vector<T>&) -> span<const T>;

template <class T>
span<T>::span(T* data, std::size_t size) : data_(data), size_(size) {
  const memory_location where = locate(data);
  if (where.space != memory_space::device && where.space != memory_space::managed) {
    throw error(errc::invalid_argument, "a span of device memory over memory of the host");
  }
  device_ = where.device;
}

}  // namespace cohort::device

template <class T>
struct cohort::memory_traits<cohort::device::span<T>> {
  using result = device::vector<std::remove_const_t<T>>;
  static constexpr memory_space space = memory_space::device;
  static memory_location locate(const device::span<T>& buffer) noexcept {
    return {space, buffer.device(), buffer.producer()};
  }
  static std::shared_ptr<const void> lease(const device::span<T>&) noexcept { return nullptr; }
  static result make(std::size_t count, const device::span<T>& like) {
    return like.producer() == nullptr
               ? result(count, device::stream(device::stream_options{.device = like.device()}))
               : result(count, device::stream::borrow(like.producer(), like.device()));
  }
};

#endif
