// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::device::copy`: queues a copy between device memory and pinned memory of the host, or
/// between devices.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/pinned_vector.hpp>
#include <cohort/device/span.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace cohort::device {
namespace detail {

/// One end of a copy.
struct copy_end {
  const void* data;
  std::size_t size;
  memory_space space;
  int device;
  cudaStream_t producer;
};

template <class T>
span<T> device_view(span<T> view) {
  return view;
}
template <class T>
span<T> device_view(vector<T>& all) {
  return all;
}
template <class T>
span<const T> device_view(const vector<T>& all) {
  return all;
}

template <class B>
concept device_end = requires(B& buffer) { device_view(buffer); };

template <class B>
concept host_end =
    !device_end<B> && std::ranges::contiguous_range<B> && std::ranges::sized_range<B> &&
    std::is_trivially_copyable_v<std::ranges::range_value_t<B>>;

template <class B>
struct end_element;
template <device_end B>
struct end_element<B> {
  using type = typename decltype(device_view(std::declval<B&>()))::element_type;
};
template <host_end B>
struct end_element<B> {
  using type = std::remove_pointer_t<decltype(std::ranges::data(std::declval<B&>()))>;
};
template <class B>
using end_element_t = typename end_element<B>::type;

template <device_end B>
copy_end end_of(B& buffer) {
  const auto view = device_view(buffer);
  return {view.data(), view.size(), memory_space::device, view.device(), view.producer()};
}
template <host_end B>
copy_end end_of(B& buffer) {
  constexpr bool is_known = memory_space_of<B> == memory_space::pinned;
  const void* data = std::ranges::data(buffer);
  const memory_space space = is_known ? memory_space::pinned : locate(data).space;
  return {data, std::ranges::size(buffer), space, -1, nullptr};
}

/// Throws what `copy` does before anything is queued; of pageable memory only if that is refused.
void check_copy(const stream& on, const copy_end& from, const copy_end& to, bool pageable = false);
void queue_copy(const stream& on, const copy_end& from, const copy_end& to, std::size_t width);

}  // namespace detail

/// What a copy takes: device::vector, device::span, or a contiguous range in pinned memory.
template <class B>
concept copyable_buffer =
    detail::device_end<std::remove_reference_t<B>> || detail::host_end<std::remove_reference_t<B>>;

/// Queues a copy of all of `from` to `to`, of the same element type and size, on `on`, and returns:
/// `co_await device::done(on)` tells when it is over.
///
/// What the buffers' own streams have queued comes first, and what they queue later comes after
/// it. Memory of the host must be pinned (`pinned_vector`, or registered with CUDA): with pageable
/// memory CUDA would block this thread, so that is error(errc::invalid_argument), and `staged_copy`
/// is there for it. It must stay until the copy is over; device vectors may go before.
///
/// Device memory is on the device of `on`, but for one end of a copy from device to device, which
/// may be on another one; else error(errc::wrong_device). CUDA takes the way through the host where
/// the devices cannot reach each other. A span of the other device without a producer is ordered
/// with nothing there. Other errors: errc::size_mismatch, CUDA's codes.
template <copyable_buffer From, copyable_buffer To>
  requires std::same_as<std::remove_const_t<detail::end_element_t<std::remove_reference_t<From>>>,
                        detail::end_element_t<std::remove_reference_t<To>>>
void copy(const stream& on, From&& from, To&& to) {
  detail::queue_copy(on, detail::end_of(from), detail::end_of(to),
                     sizeof(detail::end_element_t<std::remove_reference_t<To>>));
}

inline void detail::check_copy(const stream& on, const copy_end& from, const copy_end& to,
                               bool pageable) {
  if (from.size != to.size) {
    throw error(errc::size_mismatch, "a copy of " + std::to_string(from.size) + " elements into " +
                                         std::to_string(to.size));
  }
  if (from.size == 0) return;
  const bool between = from.space == memory_space::device && to.space == memory_space::device;
  const bool one_is_here = from.device == on.device() || to.device == on.device();
  for (const copy_end* end : {&from, &to}) {
    const char* what = end == &from ? "the source of a copy" : "the target of a copy";
    if (end->space == memory_space::device && !(between && one_is_here)) {
      check_device(end->device, on.device(), what);
    }
    if (end->space == memory_space::device) check_usable(end->device);
    if (end->space != memory_space::host || pageable) continue;
    throw error(errc::invalid_argument,
                std::string(what) + " is pageable memory; use a pinned_vector or staged_copy");
  }
}

inline void detail::queue_copy(const stream& on, const copy_end& from, const copy_end& to,
                               std::size_t width) {
  check_copy(on, from, to);
  if (from.size == 0) return;
  check_usable(on.device());
  const scoped_device here(on.device());
  const auto is_device = [](const copy_end& end) { return end.space == memory_space::device; };
  // The handle of a default stream is the same on all devices.
  const auto is_elsewhere = [&](const copy_end& end) {
    return end.producer != nullptr && (end.producer != on.get() || end.device != on.device());
  };
  for (const copy_end* end : {&from, &to}) {
    if (is_elsewhere(*end)) on.wait(stream::borrow(end->producer, end->device));
  }
  if (is_device(from) && is_device(to) && from.device != to.device) {
    check(cudaMemcpyPeerAsync(const_cast<void*>(to.data), to.device, from.data, from.device,
                              from.size * width, on.get()),
          "cudaMemcpyPeerAsync", on.device());
  } else {
    check(cudaMemcpyAsync(const_cast<void*>(to.data), from.data, from.size * width,
                          cudaMemcpyDefault, on.get()),
          "cudaMemcpyAsync", on.device());
  }
  for (const copy_end* end : {&from, &to}) {
    if (is_elsewhere(*end)) stream::borrow(end->producer, end->device).wait(on);
  }
}

}  // namespace cohort::device

#endif
