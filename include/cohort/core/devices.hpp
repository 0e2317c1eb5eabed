// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What verbs say of devices, without their headers: how elements that lie where MPI cannot
/// work on them come to where it can, and back; when an operation on a device ends for its awaiter;
/// and the stream that it is ordered with. The layer that knows
/// the memory and the one that knows MPI meet here, so that neither includes the other.

#include <cohort/core/buffer.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <system_error>

namespace cohort {

/// A located buffer of an operation, and where MPI finds its elements.
struct staged_buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  memory_location where;
  std::shared_ptr<const void> lease;  ///< keeps the memory; null: borrowed
  std::byte* at = nullptr;            ///< set by a carrier, for as long as that lives
};

/// Carries the staged buffers of one operation to the host and back. Nothing in it blocks: its
/// owner asks it at each look.
class carrier {
 public:
  carrier(const carrier&) = delete;
  carrier& operator=(const carrier&) = delete;
  virtual ~carrier() = default;

  /// The elements are read before the operation, written after it, or both. `direct`: MPI is given
  /// the memory itself. Throws what stands in the way.
  virtual void add(staged_buffer& of, bool is_read, bool is_written, bool direct) = 0;
  /// Begins to bring the elements to the host, or to wait until they are there.
  virtual void fetch() = 0;
  /// Begins to bring `most` bytes of each result back, if there is any. Not if there is none.
  [[nodiscard]] virtual bool store(std::size_t most) = 0;
  /// True when nothing is under way any more. `ends`: nothing new is begun, nor waited for unless
  /// it uses memory of the caller's. After a failure of its own it behaves so too.
  [[nodiscard]] virtual bool is_over(bool ends) noexcept = 0;
  /// What has gone wrong.
  [[nodiscard]] virtual std::error_code failure() const noexcept = 0;

 protected:
  carrier() noexcept {}
};

/// The customisation point: specialised for a space by a header that knows its memory, with
/// `make()`, which returns a carrier, and `is_claimed(int device)`: MPI must not be given the
/// memory itself, as somebody else works on that device.
template <memory_space Space>
struct carrier_of;

/// What a verb of MPI takes to read from or to write to. Which located buffers have a carrier is
/// not asked here, for a concept has one answer, and a carrier may be declared after the first
/// question.
template <class B>
concept verb_input = input_buffer<B> || located_buffer<B>;
template <class B>
concept verb_output = output_buffer<B> || writable_located_buffer<B>;

/// Answers whether a pointer is into device memory; null where no layer that knows is part of the
/// program. `cohort/staging.hpp` sets it.
using memory_question = bool (*)(const void*) noexcept;
[[nodiscard]] inline std::atomic<memory_question>& device_memory_question() noexcept {
  static constinit std::atomic<memory_question> asked{nullptr};
  return asked;
}

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
