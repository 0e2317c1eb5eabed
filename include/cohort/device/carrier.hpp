// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Brings the elements of device buffers to pinned memory and back, for what works on the host.
/// Included by `cohort/staging.hpp`, with what uses it.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/devices.hpp>
#include <cohort/device/copy.hpp>
#include <cohort/device/error.hpp>
#include <cohort/device/memory.hpp>
#include <cohort/device/pinned_vector.hpp>
#include <cohort/device/span.hpp>
#include <cohort/device/stream.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::device {

/// 1. `fetch`: pinned memory of each buffer's size, from the pool or from a thread; copies to it
///    behind what the buffers' streams have queued; an event behind each.
/// 2. `store`: copies back, and their events.
class pinned_carrier final : public carrier {
 public:
  pinned_carrier() noexcept {}
  ~pinned_carrier() override {
    for (const part& one : parts_) {
      if (one.is_lent) state_of(one.of.where.device).take_back();
    }
  }

  /// Also throws error(errc::device_ordered) where NCCL launches and MPI is to be given the memory.
  inline void add(staged_buffer& of, bool is_read, bool is_written, bool direct) override;
  inline void fetch() override;
  [[nodiscard]] inline bool store(std::size_t most) override;
  [[nodiscard]] inline bool is_over(bool ends) noexcept override;
  [[nodiscard]] std::error_code failure() const noexcept override { return why_; }

 private:
  struct part {
    staged_buffer of;
    staged_buffer* target;
    bool is_read;
    bool is_written;
    bool is_lent;
    std::optional<stream> on;  // where its copies go
    std::optional<polled_block> asked;
    pinned_vector<std::byte> memory;
  };
  struct mark {
    event behind;
    bool is_copy;  // of this operation, which uses the memory until it is over
  };

  [[nodiscard]] static inline stream stream_of(const staged_buffer& of);
  inline void take_memory();
  [[nodiscard]] inline bool is_reached(const mark& one) noexcept;
  void fail(std::error_code why) noexcept {
    if (!why_) why_ = why;
  }
  /// Calls `what`, and keeps the code of its exception.
  template <class Function>
  void attempt(Function what) noexcept {
    try {
      what();
    } catch (const std::system_error& failed) {
      fail(failed.code());
    } catch (...) {
      fail(std::make_error_code(std::errc::not_enough_memory));
    }
  }

  std::vector<part> parts_;
  std::vector<mark> marks_;
  std::error_code why_;
};

inline void pinned_carrier::add(staged_buffer& of, bool is_read, bool is_written, bool direct) {
  check_usable(of.where.device);
  parts_.push_back({of, &of, is_read, is_written, false, {}, {}, {}});
  if (!direct) return;
  device_state& its = state_of(of.where.device);
  its.lend();  // MPI has it until this object goes
  parts_.back().is_lent = true;
  if (!its.has_launcher()) return;
  throw error(errc::device_ordered, "NCCL works on device " + std::to_string(of.where.device));
}

/// The stream that writes the buffer, or one of their own.
inline stream pinned_carrier::stream_of(const staged_buffer& of) {
  if (of.where.producer == nullptr) return stream(stream_options{.device = of.where.device});
  return named_stream(of.where.producer, of.where.device);
}

/// A stream in capture would take the copy into its graph, and no event tells of it.
inline void refuse_capture(const stream& on) {
  if (on.is_capturing()) throw error(errc::not_supported, "the stream is being captured");
}

inline void pinned_carrier::fetch() {
  attempt([this] {
    for (part& one : parts_) {
      one.on = stream_of(one.of);
      if (one.is_lent) {
        one.target->at = one.of.data;
        marks_.push_back({one.on->record(), false});
      } else {
        refuse_capture(*one.on);
        one.asked.emplace(one.of.bytes, one.on->device());
      }
    }
    take_memory();
  });
}

/// Queues the copies to the memory that has come.
inline void pinned_carrier::take_memory() {
  for (part& one : parts_) {
    if (!one.asked || !one.asked->has_come()) continue;
    pooled_block block = std::exchange(one.asked, std::nullopt)->take();
    one.memory = pinned_vector<std::byte>(block.release(), one.of.bytes, *one.on);
    one.target->at = one.memory.data();
    if (!one.is_read) continue;
    refuse_capture(*one.on);
    copy(*one.on, span<const std::byte>(one.of.data, one.of.bytes, *one.on), one.memory);
    marks_.push_back({one.on->record(), true});
  }
}

inline bool pinned_carrier::store(std::size_t most) {
  attempt([this, most] {
    for (part& one : parts_) {
      if (!one.is_written || one.is_lent) continue;
      const std::size_t bytes = std::min(most, one.of.bytes);
      refuse_capture(*one.on);
      copy(*one.on, std::span<const std::byte>(one.memory.data(), bytes),
           span<std::byte>(one.of.data, bytes, *one.on));
      marks_.push_back({one.on->record(), true});
    }
  });
  return why_ || !marks_.empty();
}

inline bool pinned_carrier::is_over(bool ends) noexcept {
  if (!ends && !why_) attempt([this] { take_memory(); });
  if (ends || why_) {
    for (part& one : parts_) one.asked.reset();
    std::erase_if(marks_, [](const mark& one) { return !one.is_copy; });
  }
  std::erase_if(marks_, [this](const mark& one) { return is_reached(one); });
  return marks_.empty() &&
         std::none_of(parts_.begin(), parts_.end(), [](const part& one) { return one.asked; });
}

/// Asks CUDA. What has gone with its device is over too.
inline bool pinned_carrier::is_reached(const mark& one) noexcept {
  const int device = one.behind.device();
  const std::uint32_t made_in = one.behind.generation();
  device_state& state = state_of(device);
  if (!state.holds(made_in)) {
    const cudaError_t lost = state.lost();
    fail(make_error(lost == cudaSuccess ? cudaErrorContextIsDestroyed : lost));
    return true;
  }
  const detail::relaxed_capture may_ask;
  const cudaError_t code = one.behind.query();
  if (code == cudaErrorNotReady) return false;
  if (code == cudaSuccess) return true;
  // The event was good when it was recorded, so a refusal means that its context has gone.
  if (code == cudaErrorInvalidResourceHandle) state.context_gone(made_in);
  detail::note(code, device, made_in);
  fail(make_error(code));
  return true;
}

/// Managed memory does not count, for the host may touch it. One query of CUDA.
[[nodiscard]] inline bool is_device_memory(const void* pointer) noexcept {
  try {
    return locate(pointer).space == memory_space::device;
  } catch (const std::exception&) {
    return false;  // a device that fails says so elsewhere
  }
}

namespace detail {
inline const bool memory_is_asked_about = [] {
  device_memory_question().store(&is_device_memory, std::memory_order_release);
  return true;
}();
}  // namespace detail

}  // namespace cohort::device

namespace cohort {

template <>
struct carrier_of<memory_space::device> {
  [[nodiscard]] static std::unique_ptr<carrier> make() {
    return std::make_unique<device::pinned_carrier>();
  }
  /// Whether NCCL has a communicator there.
  [[nodiscard]] static bool is_claimed(int device) noexcept {
    return device >= 0 && device::state_of(device).has_launcher();
  }
};
template <>
struct carrier_of<memory_space::managed> : carrier_of<memory_space::device> {};

}  // namespace cohort

#endif
