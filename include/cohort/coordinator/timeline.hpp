// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The timeline: what a coordinator did when, in a file that Perfetto opens; and who records it,
/// with the times of a device. Programs start it at the coordinator:
///
/// \code
/// cohort::coordinator coord(world);
/// coord.start_timeline("trace.json");  // on rank 3 of several: trace.3.json
/// double loss = world.rank();
/// co_await coord.all_reduce("loss", loss, cohort::op::average);
/// coord.step();                        // a mark between two steps of the training
/// coord.stop_timeline();
/// co_await coord.shutdown();
/// \endcode

#include <cohort/comm/device_backend.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/tool_range.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

namespace cohort::coordination {

/// What an operation goes through, in this order.
enum class phase : std::uint8_t {
  negotiate,      ///< from its submission until it is elected, or fails
  queue,          ///< from there until its turn comes in the order of the log
  pack,           ///< copying it into the fusion buffer
  data,           ///< the data operation
  unpack,         ///< copying the result out of the fusion buffer
  device_pack,    ///< the same on a device, when the device did it; of a pack, not of an operation
  device_reduce,  ///< the data operation there
  device_unpack,
};

struct timeline_options {
  std::size_t ring = 65'536;            ///< events kept in memory at most
  std::uint64_t limit = 1'073'741'824;  ///< bytes on disk at most; what follows is lost
  std::uint64_t growth = 262'144;       ///< bytes of blanks that the file grows by
  std::string device{};                 ///< what tells the device of this rank apart, if it has one
};

/// The file of one rank: "trace.json" becomes "trace.3.json", unless the rank is the only one.
[[nodiscard]] std::string timeline_path(std::string_view path, int rank, int size);

/// Records the phases of named operations, one file per rank, in the trace format of Chrome.
///
/// An event takes 64 bytes and its name until it is written. Events are written when `flush` is
/// called, or when there are `ring` of them, or when their names fill 32 bytes for each of these.
/// Between two calls the file is valid JSON, and nearly always inside one, so a process that is
/// killed leaves a file that can be opened. There is no thread. A disk that is full costs events,
/// never more than that: they are counted, the log is told once, and recording goes on when there
/// is room again.
///
/// In the viewer a rank is a process and a phase is a row; more rows of a phase appear where
/// operations overlap. Those that end at the same time can share a row, so give operations that are
/// elected together the same `end`.
///
/// *Threads.* The loop's only. *Cost.* While nothing is recorded each call is one branch.
class timeline {
 public:
  using time = steady_clock::time_point;

  timeline(int rank, int size) noexcept;
  ~timeline();
  timeline(const timeline&) = delete;
  timeline& operator=(const timeline&) = delete;

  /// Starts a new file at `timeline_path(path, rank, size)`, after ending the one before. On an
  /// error, which is the operating system's, nothing is recorded.
  [[nodiscard]] std::error_code start(const std::string& path,
                                      const timeline_options& options = {});
  /// Writes what is left and closes the file. Does nothing if nothing is recorded.
  void stop() noexcept;
  [[nodiscard]] bool active() const noexcept { return recording_ != nullptr; }

  /// A phase of one operation. With its name, `set` and `log_count` tell it apart on all ranks
  /// alike; `log_count` is 0 for one that was not elected, and operations that are elected together
  /// may go by that of the first. Of a name only the first 512 bytes are kept, and what began
  /// before the recording did is shown from its beginning. A submission's time must be read from
  /// the clock, not from the last lap: who was the last is told from it.
  void span(phase what, std::string_view name, std::uint64_t epoch, std::uint32_t set,
            std::uint64_t log_count, time begin, time end, std::size_t bytes = 0) noexcept {
    if (active()) [[unlikely]] {
      record_span(what, name, epoch, set, log_count, begin, end, bytes);
    }
  }

  /// A data operation that moves `tensors` operations together, of which `log_count` is the first
  /// and whose log counts follow one another. Takes the place of `span(phase::data, ...)`.
  void data(std::string_view verb, std::uint32_t set, std::uint64_t log_count, std::size_t tensors,
            std::size_t bytes, time begin, time end, std::string_view backend) noexcept {
    if (active()) [[unlikely]] {
      record_together(phase::data, verb, set, log_count, tensors, bytes, begin, end, backend);
    }
  }

  /// What a device did, for `tensors` operations together of which `log_count` is the first.
  void device(phase what, std::string_view verb, std::uint32_t set, std::uint64_t log_count,
              std::size_t tensors, std::size_t bytes, time begin, time end) noexcept {
    if (active()) [[unlikely]] {
      record_together(what, verb, set, log_count, tensors, bytes, begin, end, {});
    }
  }

  /// Something that happened at one moment: a fault, a new generation, a stall warning.
  void instant(std::string_view what, time when) noexcept {
    if (active()) [[unlikely]] {
      record_instant(what, when);
    }
  }

  /// Writes what has been recorded: a system call for each 4 KiB or part of it. So an owner that
  /// has short laps waits until some dozen events are `pending` or the loop is about to sleep.
  void flush() noexcept {
    if (active()) [[unlikely]] {
      write_pending();
    }
  }

  /// Events that are not in the file yet.
  [[nodiscard]] std::size_t pending() const noexcept;

  /// Events lost since the last `start`, because the disk had no room or the file its full size.
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  struct event;
  struct recording;

  void record_span(phase what, std::string_view name, std::uint64_t epoch, std::uint32_t set,
                   std::uint64_t log_count, time begin, time end, std::size_t bytes) noexcept;
  void record_together(phase what, std::string_view verb, std::uint32_t set,
                       std::uint64_t log_count, std::size_t tensors, std::size_t bytes, time begin,
                       time end, std::string_view backend) noexcept;
  void record_instant(std::string_view what, time when) noexcept;
  void record(event one, std::string_view name, std::string_view backend) noexcept;
  void write_pending() noexcept;
  void lose(std::size_t events, const std::error_code& why) noexcept;

  int rank_;
  int size_;
  std::uint64_t dropped_ = 0;
  std::unique_ptr<recording> recording_;
};

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
    if (log_.tuned.active()) log_.tuned.marked();
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

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/coordinator/timeline/timeline.ipp>
#endif
