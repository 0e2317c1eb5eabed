// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What a backend notes when operations on device memory are submitted.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/core/buffer.hpp>
#include <cohort/device/event.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/nccl/queue/work.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace cohort::nccl {

/// What a submission has touched.
class submission_mark final : public comm::device_mark {
 public:
  std::vector<buffer_use> uses;
  std::vector<device::event> after;
};

/// Of one device. For each function see comm::device_backend. *Threads*: any.
class submissions {
 public:
  explicit submissions(int device) noexcept : device_(device) {}

  [[nodiscard]] std::shared_ptr<comm::device_mark> mark(
      std::span<const comm::device_buffer> buffers, const stream_ref& on) const;
  [[nodiscard]] stream_ref results();
  void add_result(comm::device_mark& to, const comm::device_buffer& made) const;
  [[nodiscard]] comm::device_buffer keep(const comm::device_buffer& of,
                                         std::shared_ptr<comm::device_mark>& mark) const;

 private:
  void check_stream(const device::stream& one, const char* field) const;
  void check_buffer(const comm::device_buffer& one) const;
  [[nodiscard]] std::optional<device::stream> taken_results() const {
    const std::lock_guard hold(mutex_);
    return results_;
  }

  int device_;
  mutable std::mutex mutex_;
  std::optional<device::stream> results_;  // memory is taken there, and nothing waits
};

}  // namespace cohort::nccl

#endif
