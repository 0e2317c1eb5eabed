// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::device::fill` and `fill_bytes`: queue the writing of one value all over device memory.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/copy.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace cohort::device {

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

// What is not one byte: the first element byte by byte, then what is there is copied behind itself
// until all is full. A pattern in pinned memory would need fewer calls, but CUDA may wait for the
// device when it is asked for that memory.
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

}  // namespace cohort::device

#endif
