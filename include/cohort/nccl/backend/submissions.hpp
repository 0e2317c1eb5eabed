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
#include <cohort/nccl/queue/device_queue.hpp>

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
  /// What the producer has queued so far comes first.
  void note(buffer_use use) {
    const bool known = std::any_of(uses.begin(), uses.end(), [&](const buffer_use& other) {
      return other.producer == use.producer;
    });
    if (use.producer && !known) after.push_back(use.producer->record());
    uses.push_back(std::move(use));
  }

  std::vector<buffer_use> uses;
  std::vector<device::event> after;
};

/// The part of a backend that knows no sets and no queue. *Threads*: any.
class marking_backend : public comm::device_backend {
 public:
  [[nodiscard]] inline std::shared_ptr<comm::device_mark> mark(
      std::span<const comm::device_buffer> buffers, const stream_ref& on) override;
  [[nodiscard]] inline stream_ref results() override;
  inline void add_result(comm::device_mark& to, const comm::device_buffer& made) override;
  [[nodiscard]] inline comm::device_buffer keep(const comm::device_buffer& of,
                                                std::shared_ptr<comm::device_mark>& mark) override;

 protected:
  explicit marking_backend(int device) noexcept : device_(device) {}

  int device_;

 private:
  void check_stream(const device::stream& one, const char* field) const;
  [[nodiscard]] buffer_use use_of(const comm::device_buffer& one) const;
  [[nodiscard]] std::optional<device::stream> taken_results() const {
    const std::lock_guard hold(mutex_);
    return results_;
  }

  mutable std::mutex mutex_;
  std::optional<device::stream> results_;  // memory is taken there, and nothing waits
};

inline void marking_backend::check_stream(const device::stream& one, const char* field) const {
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

/// Throws where the coordinator cannot use it.
inline buffer_use marking_backend::use_of(const comm::device_buffer& one) const {
  if (one.where.device != device_) {
    throw cohort::error(errc::wrong_device, std::string(one.field) +
                                                ": device=" + std::to_string(one.where.device) +
                                                ", coordinator.device=" + std::to_string(device_));
  }
  buffer_use use{one.field, one.data, one.bytes, one.where.device, {}, one.lease};
  if (one.where.producer != nullptr) {
    use.producer = device::named_stream(one.where.producer, one.where.device);
    check_stream(*use.producer, one.field);
  }
  return use;
}

inline std::shared_ptr<comm::device_mark> marking_backend::mark(
    std::span<const comm::device_buffer> buffers, const stream_ref& on) {
  auto made = std::make_shared<submission_mark>();
  device::check_usable(device_);
  if (on.device >= 0) {
    // What is behind it waits for the operation, if that is only enqueued.
    const device::stream behind = device::named_stream(on.native, on.device);
    check_stream(behind, "on");
    buffer_use use{"on", nullptr, 0, on.device, {}, on.keep};
    if (on.native != nullptr) use.producer = behind;
    made->note(std::move(use));
  }
  for (const comm::device_buffer& one : buffers) {
    if (one.bytes == 0 && one.where.device < 0) continue;
    buffer_use use = use_of(one);  // one of nothing, too: its result is made beside it
    if (one.bytes != 0) made->note(std::move(use));
  }
  return made;
}

inline stream_ref marking_backend::results() {
  const std::lock_guard hold(mutex_);
  try {
    if (!results_) results_.emplace(device::stream_options{.device = device_});
    return *results_;
  } catch (const std::system_error&) {
    return {};  // what is wrong with the device is told by whatever uses it
  }
}

// Its stream may have got work since the submission, which the operation is not to wait for.
inline void marking_backend::add_result(comm::device_mark& to, const comm::device_buffer& made) {
  auto& mark = static_cast<submission_mark&>(to);
  if (made.bytes == 0) return;
  mark.uses.push_back(use_of(made));
  const auto taken = taken_results();
  if (taken) {
    mark.after.push_back(taken->record());
  } else if (mark.uses.back().producer) {
    mark.after.push_back(mark.uses.back().producer->record());
  }
}

inline comm::device_buffer marking_backend::keep(const comm::device_buffer& of,
                                                 std::shared_ptr<comm::device_mark>& mark) {
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
  fresh->note(use_of(kept));
  mark = std::move(fresh);
  return kept;
}

}  // namespace cohort::nccl

#endif
