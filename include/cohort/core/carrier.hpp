// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How elements that lie where MPI cannot work on them come to where it can, and back: what who
/// knows the memory offers to who knows MPI, so that neither includes the other.

#include <cohort/core/buffer.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <system_error>

namespace cohort {

/// A located buffer of an operation, and where MPI finds its elements.
struct stage {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  memory_location where;
  std::shared_ptr<const void> lease;  ///< keeps the memory; null: borrowed
  std::byte* at = nullptr;            ///< set by a carrier, for as long as that lives
};

/// Carries the stages of one operation to the host and back. Nothing in it blocks: who has it asks
/// it at each look.
class carrier {
 public:
  carrier(const carrier&) = delete;
  carrier& operator=(const carrier&) = delete;
  virtual ~carrier() = default;

  /// The elements are read before the operation, written after it, or both. `direct`: MPI is given
  /// the memory itself. Throws what stands in the way.
  virtual void add(stage& of, bool is_read, bool is_written, bool direct) = 0;
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

}  // namespace cohort
