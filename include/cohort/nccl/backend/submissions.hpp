// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What a backend notes when operations on device memory are submitted.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/core/buffer.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/device/vector.hpp>
#include <cohort/nccl/queue/work.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
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

namespace detail {

/// What its producer has queued so far comes first.
inline void note_use(submission_mark& to, const comm::device_buffer& one) {
  buffer_use use{one.field, one.data, one.bytes, one.where.device, {}, one.lease};
  if (one.where.producer != nullptr) {
    use.producer = device::named_stream(one.where.producer, one.where.device);
    const bool known = std::any_of(to.uses.begin(), to.uses.end(), [&](const buffer_use& other) {
      return other.producer == use.producer;
    });
    if (!known) to.after.push_back(use.producer->record());
  }
  to.uses.push_back(std::move(use));
}

}  // namespace detail

inline void submissions::check_stream(const device::stream& one, const char* field) const {
  if (one.device() != device_) {
    throw cohort::error(errc::wrong_device, std::string(field) +
                                                ": device=" + std::to_string(one.device()) +
                                                ", coordinator.device=" + std::to_string(device_));
  }
  if (one.get() == cudaStreamPerThread) {
    throw cohort::error(
        errc::invalid_argument,
        std::string(field) + ": cudaStreamPerThread cannot be waited for from another thread");
  }
}

inline void submissions::check_buffer(const comm::device_buffer& one) const {
  if (one.where.device != device_) {
    throw cohort::error(errc::wrong_device, std::string(one.field) +
                                                ": device=" + std::to_string(one.where.device) +
                                                ", coordinator.device=" + std::to_string(device_));
  }
  if (one.where.producer == nullptr) return;
  check_stream(device::named_stream(one.where.producer, one.where.device), one.field);
}

inline std::shared_ptr<comm::device_mark> submissions::mark(
    std::span<const comm::device_buffer> buffers, const stream_ref& on) const {
  auto made = std::make_shared<submission_mark>();
  device::check_usable(device_);
  if (on.device >= 0) {
    // What is behind it waits for the operation, if that is only enqueued.
    const comm::device_buffer as{
        "on", nullptr, 0, {memory_space::device, on.device, on.native}, on.keep};
    check_stream(device::named_stream(on.native, on.device), "on");
    detail::note_use(*made, as);
  }
  for (const comm::device_buffer& one : buffers) {
    if (one.bytes == 0 && one.where.device < 0) continue;
    check_buffer(one);  // one of nothing, too: its result is made beside it
    if (one.bytes != 0) detail::note_use(*made, one);
  }
  return made;
}

inline stream_ref submissions::results() {
  const std::lock_guard hold(mutex_);
  try {
    if (!results_) results_.emplace(device::stream_options{.device = device_});
    return *results_;
  } catch (const std::system_error&) {
    return {};  // what is wrong with the device is told by whatever uses it
  }
}

// Its stream may have got work since the submission, which the operation is not to wait for.
inline void submissions::add_result(comm::device_mark& to, const comm::device_buffer& made) const {
  auto& mark = static_cast<submission_mark&>(to);
  if (made.bytes == 0) return;
  check_buffer(made);
  buffer_use use{made.field, made.data, made.bytes, made.where.device, {}, made.lease};
  if (made.where.producer != nullptr) {
    use.producer = device::named_stream(made.where.producer, device_);
  }
  mark.uses.push_back(std::move(use));
  const auto taken = taken_results();
  if (taken) {
    mark.after.push_back(taken->record());
  } else if (mark.uses.back().producer) {
    mark.after.push_back(mark.uses.back().producer->record());
  }
}

inline comm::device_buffer submissions::keep(const comm::device_buffer& of,
                                             std::shared_ptr<comm::device_mark>& mark) const {
  const device::scoped_device here(device_);
  std::vector<device::stream> ordered;  // with the submission
  if (mark) {
    for (const buffer_use& use : static_cast<submission_mark&>(*mark).uses) {
      if (use.producer) ordered.push_back(*use.producer);
    }
  }
  if (ordered.empty()) {
    // Its caller could change it before the copy is over, and nobody would know.
    throw cohort::error(errc::not_supported,
                        std::string(of.field) +
                            ": memory that no stream is ordered with cannot be kept for an "
                            "operation that its rank has given up");
  }
  device::stream on(device::stream_options{.device = device_});
  device::vector<std::byte> copy(of.bytes, on);
  for (const device::event& one : static_cast<submission_mark&>(*mark).after) on.wait(one);
  device::check(cudaMemcpyAsync(copy.data(), of.data, of.bytes, cudaMemcpyDeviceToDevice, on.get()),
                "cudaMemcpyAsync", device_);
  // Nothing that follows on these streams comes before the copy.
  const device::event copied = on.record();
  for (const device::stream& each : ordered) static_cast<void>(each.try_wait(copied));
  comm::device_buffer kept = of;
  kept.data = copy.data();
  kept.where.producer = on.get();
  kept.lease = copy.lease();
  auto fresh = std::make_shared<submission_mark>();
  detail::note_use(*fresh, kept);
  mark = std::move(fresh);
  return kept;
}

}  // namespace cohort::nccl

#endif
