// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `co_await cohort::device::make_pinned<T>(size, stream)`: pinned memory without blocking a loop.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/asio.hpp>
#include <cohort/device/detail/pinned_request.hpp>
#include <cohort/device/pinned_vector.hpp>

#include <cstddef>
#include <limits>
#include <utility>

namespace cohort::device {

/// A `pinned_vector<T>` of `size` elements on `on`, from the pool, or from CUDA by a thread where
/// the pool has no such block: `cudaHostAlloc` may wait for the device.
///
/// An awaitable for a coroutine of an `asio::io_context`. *Cancellation*: ends with
/// `operation_aborted`. *Errors*: error(errc::count_too_large), CUDA's codes.
template <class T>
[[nodiscard]] asio::awaitable<pinned_vector<T>> make_pinned(std::size_t size, stream on) {
  if (size > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) {
    throw error(errc::count_too_large, "a pinned vector of so many elements");
  }
  if (size == 0) co_return pinned_vector<T>(0, std::move(on));
  auto asked = detail::request_pinned(size * sizeof(T), on.device());
  auto block = co_await std::move(asked);
  co_return pinned_vector<T>(block.release(), size, std::move(on));
}

}  // namespace cohort::device

#endif
