// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Queues copies between device memory and pinned memory of the host, or between devices; many
/// copies on one device in one call; and the writing of one value all over device memory.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/pinned_vector.hpp>
#include <cohort/device/span.hpp>
#include <cohort/device/stream.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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

/// Throws what `copy` throws, before anything is queued. `pageable`: such memory is no error.
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

/// Queues that every byte of `to` becomes `value`, on `on`, and returns: `co_await done(on)` tells
/// when it is over. `to` is a device::vector or device::span, on the device of `on`.
///
/// As with `copy`, what the buffer's own stream has queued comes first, and what it queues later
/// comes after it; a vector may go before. *Errors*: error(errc::wrong_device), CUDA's codes.
/// *Cost*: one `cudaMemsetAsync`, and events if the buffer has another stream.
template <class To>
  requires detail::device_end<std::remove_reference_t<To>>
void fill_bytes(const stream& on, To&& to, std::byte value);

/// The same with elements: each becomes `value`, the neutral element of a reduction say.
///
/// *Cost*: one `cudaMemsetAsync` if all bytes of `value` are the same. Else one for each byte of
/// the first element, which then doubles on the device, in as many copies as the size has binary
/// digits. It needs no memory, so it never waits for the device.
template <class To>
  requires detail::device_end<std::remove_reference_t<To>>
void fill(const stream& on, To&& to,
          const std::type_identity_t<detail::end_element_t<std::remove_reference_t<To>>>& value);

namespace detail {

/// What `queue` puts on `on` comes behind what the stream of `to` has queued and before what it
/// will.
template <class Queue>
void between_producer_work(const stream& on, const copy_end& to, Queue queue) {
  check_device(to.device, on.device(), "what is to be filled");
  check_usable(on.device());
  const scoped_device here(on.device());
  const bool elsewhere = to.producer != nullptr && to.producer != on.get();
  if (elsewhere) on.wait(stream::borrow(to.producer, to.device));
  queue();
  if (elsewhere) stream::borrow(to.producer, to.device).wait(on);
}

}  // namespace detail

template <class To>
  requires detail::device_end<std::remove_reference_t<To>>
void fill_bytes(const stream& on, To&& to, std::byte value) {
  using element = detail::end_element_t<std::remove_reference_t<To>>;
  static_assert(!std::is_const_v<element>, "what is to be filled is const");
  const detail::copy_end end = detail::end_of(to);
  if (end.size == 0) return;
  detail::between_producer_work(on, end, [&] {
    check(cudaMemsetAsync(const_cast<void*>(end.data), std::to_integer<int>(value),
                          end.size * sizeof(element), on.get()),
          "cudaMemsetAsync", on.device());
  });
}

// A value of several bytes: the first element is written byte by byte, then what is there is copied
// behind itself until all is full. A pattern in pinned memory would need fewer calls, but CUDA may
// wait for the device when it is asked for that memory.
template <class To>
  requires detail::device_end<std::remove_reference_t<To>>
void fill(const stream& on, To&& to,
          const std::type_identity_t<detail::end_element_t<std::remove_reference_t<To>>>& value) {
  using element = detail::end_element_t<std::remove_reference_t<To>>;
  static_assert(!std::is_const_v<element>, "what is to be filled is const");
  const span<element> all = detail::device_view(to);
  std::array<std::byte, sizeof(element)> bytes;
  std::memcpy(bytes.data(), &value, sizeof value);
  const bool one_byte =
      std::all_of(bytes.begin(), bytes.end(), [&](std::byte each) { return each == bytes[0]; });
  if (all.empty() || one_byte) return fill_bytes(on, all, bytes[0]);
  detail::between_producer_work(on, detail::end_of(all), [&] {
    auto* const first = reinterpret_cast<std::byte*>(all.data());
    for (std::size_t i = 0; i < sizeof(element); ++i) {
      fill_bytes(on, span<std::byte>(first + i, 1, on), bytes[i]);
    }
    for (std::size_t full = 1; full < all.size();) {
      const std::size_t more = std::min(full, all.size() - full);
      copy(on, span<element>(all.data(), more, on), span<element>(all.data() + full, more, on));
      full += more;
    }
  });
}

/// One copy of a batch: `bytes` of device memory. Nothing if there are 0.
struct batch_part {
  void* to;
  const void* from;
  std::size_t bytes;
};

/// Queues all copies on `on` and returns: `co_await device::done(on)` tells when they are over.
/// They come after what `on` has queued and before what it will queue, and among themselves in any
/// order, so no part may read or write what another one writes.
///
/// All memory is on the device of `on`, ordered with it by the caller (`stream::wait`), and must
/// stay until the copies are over; freeing it in the order of `on` is enough. None of this is
/// checked here.
///
/// *Cost*: one `cudaMemcpyBatchAsync` where toolkit and driver have it (12.8). One
/// `cudaMemcpyAsync` for each part else, on the legacy default stream, and while `on` is captured,
/// for CUDA takes no batches there. *Errors*: std::system_error with CUDA's code, none of a driver
/// that is too old; copies of a batch that failed may have been queued. *Threads*: any.
void copy_batch(const stream& on, std::span<const batch_part> parts);

namespace detail {

/// The lists that CUDA takes, kept for use again.
struct batch_lists {
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<std::size_t> bytes;

  void fill(std::span<const batch_part> parts) {
    to.clear();
    from.clear();
    bytes.clear();
    for (const batch_part& part : parts) {
      if (part.bytes == 0) continue;
      to.push_back(part.to);
      from.push_back(part.from);
      bytes.push_back(part.bytes);
    }
  }
};

/// False if the driver has no batches, which is remembered, or the stream takes none.
inline bool queue_batch([[maybe_unused]] const stream& on,
                        [[maybe_unused]] std::span<const batch_part> parts) {
#if CUDART_VERSION >= 12080
  std::atomic<bool>& refused = devices().batches_refused;
  if (refused.load(std::memory_order_relaxed) || on.get() == cudaStreamLegacy) return false;
  if (on.is_capturing()) return false;
  static thread_local batch_lists lists;
  lists.fill(parts);
  if (lists.to.empty()) return true;
  cudaMemcpyAttributes how{};
  how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;  // part that `how` is for, and all after it
#if CUDART_VERSION >= 13000
  const cudaError_t code =
      cudaMemcpyBatchAsync(lists.to.data(), lists.from.data(), lists.bytes.data(), lists.to.size(),
                           &how, &first, 1, on.get());
#else
  std::size_t failed = 0;
  const cudaError_t code =
      cudaMemcpyBatchAsync(lists.to.data(), const_cast<void**>(lists.from.data()),
                           lists.bytes.data(), lists.to.size(), &how, &first, 1, &failed, on.get());
#endif
  if (code == cudaErrorNotSupported || code == cudaErrorCallRequiresNewerDriver) {
    static_cast<void>(cudaGetLastError());
    refused.store(true, std::memory_order_relaxed);
    return false;
  }
  check(code, "cudaMemcpyBatchAsync", on.device());
  return true;
#else
  return false;
#endif
}

}  // namespace detail

inline void copy_batch(const stream& on, std::span<const batch_part> parts) {
  check_usable(on.device());
  const scoped_device here(on.device());
  if (detail::queue_batch(on, parts)) return;
  for (const batch_part& part : parts) {
    if (part.bytes == 0) continue;
    check(cudaMemcpyAsync(part.to, part.from, part.bytes, cudaMemcpyDeviceToDevice, on.get()),
          "cudaMemcpyAsync", on.device());
  }
}

}  // namespace cohort::device

#endif
