// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `co_await cohort::device::staged_copy(stream, from, to)`: a copy between device memory and any
/// memory of the host, in pieces.
///
/// \code
/// const cohort::device::stream on;
/// const std::vector<float> weights(1000, 0.5F);  // pageable
/// cohort::device::vector<float> there(weights.size(), on);
/// co_await cohort::device::staged_copy(on, weights, there);
/// \endcode

#include <cohort/core/copy.hpp>
#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/completion.hpp>
#include <cohort/device/copy.hpp>
#include <cohort/device/make_pinned.hpp>
#include <cohort/device/nvtx.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>

namespace cohort::device {

struct staged_copy_options {
  /// Bytes of a piece. The loop gets a turn after each, so it also bounds for how long one keeps
  /// it; and at most two pieces are in pinned memory at a time.
  std::size_t piece = std::size_t(1) << 20;
};

/// Copies all of `from` to `to`, of the same element type and size, of which at least one is device
/// memory and the other may be pageable memory of the host: a `std::vector`, a `std::span`. An
/// awaitable for a coroutine of an `asio::io_context`; nothing happens before it is awaited.
///
/// Pieces go through pinned memory of the pool, on `on`, ordered with the streams of the device
/// buffer as `copy` orders them: the device copies one while the loop copies another. It ends when
/// the data is there. What is queued on these streams meanwhile may come between two pieces. Both
/// buffers must stay until it has ended. With pinned memory, and between devices, it is a `copy`
/// that is awaited.
///
/// *Never blocks the loop*: where the pool has no block, a thread asks CUDA for one, for that may
/// wait for the device.
/// *Cancellation*, between two pieces and under `with_deadline`: it ends with `operation_aborted`,
/// with some pieces copied. Host memory is not touched afterwards; a piece on its way to the device
/// still arrives, so free device memory in the order of its stream. *Errors*: those of `copy` but
/// for pageable memory, before anything is copied; errc::invalid_argument if no end is device
/// memory, a piece has no bytes, or in the capture of `on` errc::not_supported; CUDA's codes.
/// *Cost*: a copy by the host more than `copy`, a call and a wait for each piece.
/// *Source*: docs/design/gpu.md.
template <copyable_buffer From, copyable_buffer To>
  requires std::same_as<std::remove_const_t<detail::end_element_t<std::remove_reference_t<From>>>,
                        detail::end_element_t<std::remove_reference_t<To>>>
[[nodiscard]] asio::awaitable<void> staged_copy(const stream& on, From&& from, To&& to,
                                                staged_copy_options options = {});

namespace detail {

/// The part of an end that begins at `offset`, as bytes.
[[nodiscard]] inline copy_end part_of(copy_end end, std::size_t offset, std::size_t bytes) {
  end.data = static_cast<const std::byte*>(end.data) + offset;
  end.size = bytes;
  return end;
}

/// A copy of bytes in pieces, through two buffers that take turns.
class piecewise_copy {
 public:
  piecewise_copy(stream on, std::size_t piece) : on_(std::move(on)), piece_(piece) {}

  [[nodiscard]] asio::awaitable<void> to_device(copy_end from, copy_end to);
  [[nodiscard]] asio::awaitable<void> to_host(copy_end from, copy_end to);

 private:
  using buffer = pinned_vector<std::byte>;

  [[nodiscard]] asio::awaitable<buffer> make_buffer(std::size_t bytes) const {
    auto block = co_await request_pinned(bytes, on_.device());
    co_return buffer(block.release(), bytes, on_);
  }
  [[nodiscard]] static copy_end end_at(buffer& of, std::size_t bytes) noexcept {
    return {of.data(), bytes, memory_space::pinned, -1, nullptr};
  }
  [[nodiscard]] std::size_t length(std::size_t offset, std::size_t all) const noexcept {
    return std::min(piece_, all - offset);
  }

  stream on_;
  std::size_t piece_;
};

// 1. Fill a buffer.
// 2. Queue its copy to the device; meanwhile fill the other one with the next piece.
// 3. Wait for the device, which also gives the loop its turn, and go on with the other one.
inline asio::awaitable<void> piecewise_copy::to_device(copy_end from, copy_end to) {
  const std::size_t all = from.size;
  const auto* const source = static_cast<const std::byte*>(from.data);
  buffer now = co_await make_buffer(length(0, all));
  buffer next;
  if (all > piece_) next = co_await make_buffer(length(piece_, all));
  copy_bytes(now.data(), source, length(0, all));
  for (std::size_t at = 0; at < all; at += piece_) {
    const std::size_t bytes = length(at, all);
    queue_copy(on_, end_at(now, bytes), part_of(to, at, bytes), 1);
    const std::size_t behind = at + bytes;
    if (behind < all) copy_bytes(next.data(), source + behind, length(behind, all));
    co_await done(on_);
    std::swap(now, next);
  }
}

// The same the other way: the next piece is on its way while this one is copied by the host.
inline asio::awaitable<void> piecewise_copy::to_host(copy_end from, copy_end to) {
  const std::size_t all = from.size;
  auto* const target = static_cast<std::byte*>(const_cast<void*>(to.data));
  buffer now = co_await make_buffer(length(0, all));
  buffer next;
  if (all > piece_) next = co_await make_buffer(length(piece_, all));
  queue_copy(on_, part_of(from, 0, length(0, all)), end_at(now, length(0, all)), 1);
  for (std::size_t at = 0; at < all; at += piece_) {
    co_await done(on_);
    const std::size_t bytes = length(at, all);
    const std::size_t behind = at + bytes;
    if (behind < all) {
      const std::size_t more = length(behind, all);
      queue_copy(on_, part_of(from, behind, more), end_at(next, more), 1);
    }
    copy_bytes(target + at, now.data(), bytes);
    std::swap(now, next);
  }
}

inline asio::awaitable<void> staged_copy_of(stream on, copy_end from, copy_end to,
                                            std::size_t width, std::size_t piece) {
  attach_tools();
  const tools::range watched(tools::category::copy, tools::literal("staged_copy"),
                             from.size * width);
  if (piece == 0) throw error(errc::invalid_argument, "a staged copy in pieces of no bytes");
  check_copy(on, from, to, /*pageable*/ true);
  if (from.size == 0) co_return;
  const bool device_is_source = from.space == memory_space::device;
  if (!device_is_source && to.space != memory_space::device) {
    throw error(errc::invalid_argument, "a staged copy of which no end is device memory");
  }
  check_usable(on.device());
  if (on.is_capturing()) throw error(errc::not_supported, "a staged copy in a captured stream");
  if (from.space != memory_space::host && to.space != memory_space::host) {
    queue_copy(on, from, to, width);
    co_await done(on);
    co_return;
  }
  piecewise_copy through(on, piece);
  const copy_end source = part_of(from, 0, from.size * width);
  const copy_end target = part_of(to, 0, to.size * width);
  if (device_is_source) {
    co_await through.to_host(source, target);
  } else {
    co_await through.to_device(source, target);
  }
}

}  // namespace detail

template <copyable_buffer From, copyable_buffer To>
  requires std::same_as<std::remove_const_t<detail::end_element_t<std::remove_reference_t<From>>>,
                        detail::end_element_t<std::remove_reference_t<To>>>
asio::awaitable<void> staged_copy(const stream& on, From&& from, To&& to,
                                  staged_copy_options options) {
  return detail::staged_copy_of(on, detail::end_of(from), detail::end_of(to),
                                sizeof(detail::end_element_t<std::remove_reference_t<To>>),
                                options.piece);
}

}  // namespace cohort::device

#endif
