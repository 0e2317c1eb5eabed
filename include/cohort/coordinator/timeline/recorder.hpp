// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a coordinator and its sets record together: the timeline, and the device's times.

#include <cohort/comm/device_backend.hpp>
#include <cohort/coordinator/timeline.hpp>
#include <cohort/core/tool_range.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <system_error>

namespace cohort::coordination {

template <class Any>
class negotiation;

/// One for a coordinator and its sets. What happens enters by `events`; what a device has done is
/// fetched.
template <class Any>
class recorder {
 public:
  recorder(negotiation<Any>& log, int rank, int size)
      : events(std::make_shared<timeline>(rank, size)), log_(log) {}

  std::shared_ptr<timeline> events;

  std::error_code start(const std::string& path) {
    stop();
    timeline_options recording;
    recording.ring = static_cast<std::size_t>(log_.options.timeline_ring);
    if (log_.device) recording.device = log_.device->device_name();
    const std::error_code bad = events->start(path, recording);
    if (log_.device && !bad) log_.device->record_times(true);
    return bad;
  }
  /// What a device has not done by then is not in the file.
  void stop() noexcept {
    if (!events->active()) return;
    take_device_times();
    if (log_.device) log_.device->record_times(false);
    events->stop();
  }
  void step() {
    const comm::request_source::guard hold(log_.source);
    events->instant("step", log_.now());
    tools::mark(tools::category::event, tools::literal("step"));
  }
  /// What the device has done since the last time.
  void take_device_times() noexcept {
    if (!log_.device || !events->active()) return;
    static constexpr std::array rows{phase::device_pack, phase::device_reduce,
                                     phase::device_unpack};
    try {
      log_.device->take_times([this](const comm::device_span& one) {
        events->device(rows[static_cast<std::size_t>(one.what)], one.verb,
                       static_cast<std::uint32_t>(log_.sets.at(one.set).id), one.sequence,
                       one.tensors, one.bytes, one.begin, one.end);
      });
    } catch (const std::exception&) {
      // No memory. What has been taken and is not written is lost.
    }
  }

 private:
  negotiation<Any>& log_;
};

}  // namespace cohort::coordination
