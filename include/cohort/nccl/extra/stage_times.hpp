// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// When a device did the stages of elected operations: packing, NCCL's calls, unpacking.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/device/device_clock.hpp>
#include <cohort/nccl/backend/extras.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// Of one backend: makes events with timing while somebody records, and none otherwise.
class stage_times final : public stage_timer {
 public:
  inline void record(bool yes, int device) noexcept override;
  [[nodiscard]] inline std::unique_ptr<operation> start(
      const comm::device_call& what) noexcept override;
  inline std::uint64_t put(std::unique_ptr<operation> one) noexcept override;
  inline void forget(std::unique_ptr<operation> half, std::uint64_t number) noexcept override;
  [[nodiscard]] inline std::vector<comm::device_span> take() override;

 private:
  class timed final : public operation {
   public:
    void begin(comm::device_stage what, const device::stream& on,
               std::size_t bytes) noexcept override {
      stage& one = stages_[static_cast<std::size_t>(what)];
      one.bytes = bytes;
      one.has_begun = one.begin.record(on);
    }
    void end(comm::device_stage what, const device::stream& on) noexcept override {
      stage& one = stages_[static_cast<std::size_t>(what)];
      one.has_ended = one.has_begun && one.end.record(on);
    }

   private:
    friend class stage_times;
    struct stage {
      device::timing_event begin;
      device::timing_event end;
      std::size_t bytes = 0;
      bool has_begun = false;
      bool has_ended = false;
    };
    std::array<stage, 3> stages_;
    std::shared_ptr<const device::device_clock::base> base_;
    comm::device_span about_;
    std::uint64_t recording_ = 0;
  };

  struct entry {
    std::uint64_t number;
    std::unique_ptr<timed> of;
  };
  [[nodiscard]] device::timing_event take_event() noexcept;
  void give_back(timed& one) noexcept;
  void read(const timed& one, std::vector<comm::device_span>& to) const;

  int device_ = -1;
  std::optional<device::device_clock> clock_;  // while somebody records
  std::deque<entry> over_;                     // of which all events are recorded
  std::vector<device::timing_event> pool_;
  std::uint64_t numbers_ = 0;
  std::uint64_t recording_ = 0;  // which one
};

inline void stage_times::record(bool yes, int device) noexcept {
  over_.clear();
  pool_.clear();
  clock_.reset();
  ++recording_;
  if (!yes) return;
  try {
    device_ = device;
    device::check_usable(device);
    clock_.emplace(device);
    clock_->look();
  } catch (const std::exception&) {
    clock_.reset();  // the operations will say what is wrong with the device
  }
}

inline device::timing_event stage_times::take_event() noexcept {
  if (pool_.empty()) return device::timing_event::make(device_);
  device::timing_event one = std::move(pool_.back());
  pool_.pop_back();
  return one;
}

inline std::unique_ptr<stage_timer::operation> stage_times::start(
    const comm::device_call& what) noexcept {
  if (!clock_) [[likely]] {
    return nullptr;
  }
  try {
    clock_->look();
    auto made = std::make_unique<timed>();
    made->base_ = clock_->latest();
    if (!made->base_) return nullptr;
    for (timed::stage& each : made->stages_) {
      each.begin = take_event();
      each.end = take_event();
    }
    made->recording_ = recording_;
    made->about_.verb = what.verb;
    made->about_.sequence = what.sequence;
    made->about_.set = what.set;
    made->about_.tensors = what.tensors.size();
    return made;
  } catch (const std::exception&) {
    return nullptr;  // the operation goes on without
  }
}

inline std::uint64_t stage_times::put(std::unique_ptr<operation> one) noexcept {
  std::unique_ptr<timed> its(static_cast<timed*>(one.release()));
  if (!its || !clock_ || its->recording_ != recording_) return 0;
  try {
    over_.push_back({++numbers_, std::move(its)});
    return numbers_;
  } catch (const std::exception&) {
    return 0;
  }
}

inline void stage_times::forget(std::unique_ptr<operation> half, std::uint64_t number) noexcept {
  if (half) give_back(static_cast<timed&>(*half));
  if (number == 0) return;
  for (entry& each : over_) {
    if (each.number != number) continue;
    give_back(*each.of);
    each.of.reset();
  }
  std::erase_if(over_, [](const entry& each) { return !each.of; });
}

/// Events that are in flight may be recorded again.
inline void stage_times::give_back(timed& one) noexcept {
  if (!clock_) return;
  try {
    for (timed::stage& each : one.stages_) {
      if (each.begin.valid()) pool_.push_back(std::move(each.begin));
      if (each.end.valid()) pool_.push_back(std::move(each.end));
    }
  } catch (const std::exception&) {
  }
}

inline void stage_times::read(const timed& one, std::vector<comm::device_span>& to) const {
  for (std::size_t i = 0; i < one.stages_.size(); ++i) {
    const timed::stage& each = one.stages_[i];
    if (!each.has_ended) continue;
    const auto begin = one.base_->time_of(each.begin);
    const auto length = each.end.since(each.begin);
    if (!begin || !length) continue;
    comm::device_span found = one.about_;
    found.what = static_cast<comm::device_stage>(i);
    found.bytes = each.bytes;
    found.begin = *begin;
    found.end = *begin + *length;
    to.push_back(found);
  }
}

inline std::vector<comm::device_span> stage_times::take() {
  std::vector<comm::device_span> found;
  if (!clock_) return found;
  clock_->look();
  while (!over_.empty()) {
    timed& first = *over_.front().of;
    if (!first.base_->known()) break;
    // The stages follow one another, so the last one stands for all.
    const auto last = std::find_if(first.stages_.rbegin(), first.stages_.rend(),
                                   [](const timed::stage& each) { return each.has_ended; });
    const cudaError_t code = last == first.stages_.rend() ? cudaSuccess : last->end.query();
    if (code == cudaErrorNotReady) break;
    if (code != cudaSuccess) {  // the device has gone, and its events with it
      record(false, device_);
      break;
    }
    read(first, found);
    give_back(first);
    over_.pop_front();
  }
  return found;
}

}  // namespace cohort::nccl

#endif
