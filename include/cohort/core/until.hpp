// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file When an operation on a device ends for its awaiter, and the stream that it is ordered
/// with.

#include <cstdint>
#include <memory>

namespace cohort {

/// When an operation on a device ends for its awaiter.
enum class until : std::uint8_t {
  complete,  ///< its result is there
  /// It is queued on the device, and so is the wait of the caller's stream for it: what is put on
  /// that stream from then on sees the result. No host waits for data. An error that comes later is
  /// that of the communicator, and of every operation after it.
  enqueued
};

/// A stream of a device, without the headers of the device: anything that has `get()`, `device()`
/// and copies as a handle, which keeps it alive.
struct stream_ref {
  stream_ref() noexcept {}
  template <class Stream>
  requires requires(const Stream& one) {
    static_cast<const void*>(one.get());
    static_cast<int>(one.device());
  }
  stream_ref(const Stream& one)  // NOLINT: converting, so that a stream can be named as an option
      : native(one.get()), device(one.device()), keep(std::make_shared<const Stream>(one)) {}

  const void* native = nullptr;
  int device = -1;  ///< -1: none
  std::shared_ptr<const void> keep;
};

}  // namespace cohort
