// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file When an operation on a device ends for its awaiter, and the stream that it is ordered
/// with.

#include <concepts>
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

/// A stream that is named in the options of a call. Borrowed: it must live until the call is made,
/// which for `co_await` is at once. (It owns nothing, because g++ 12 copies temporary aggregates
/// bit by bit in an expression with co_await.)
class stream_argument {
 public:
  stream_argument() noexcept {}
  template <class Stream>
    requires std::convertible_to<const Stream&, stream_ref>
  stream_argument(const Stream& one) noexcept  // NOLINT: converting
      : stream_(&one),
        make_([](const void* stream) { return stream_ref(*static_cast<const Stream*>(stream)); }) {}

  [[nodiscard]] explicit operator bool() const noexcept { return stream_ != nullptr; }
  [[nodiscard]] stream_ref get() const {
    return stream_ == nullptr ? stream_ref() : make_(stream_);
  }

 private:
  const void* stream_ = nullptr;
  stream_ref (*make_)(const void*) = nullptr;
};

}  // namespace cohort
