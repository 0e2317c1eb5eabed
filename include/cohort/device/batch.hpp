// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::device::copy_batch`: queues many copies on one device in one call.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/stream.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace cohort::device {

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
