// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// One operation on a device as the issuing queue sees it: the calls of NCCL that it is made of,
/// the memory and the streams that it touches, and where it stands.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/devices.hpp>
#include <cohort/core/kinds.hpp>
#include <cohort/core/tool_range.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/nccl/types.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/polled_source.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace cohort::nccl {

class communicator_state;
class issue_source;
struct work_set;
class work;

using cohort::until;

/// One call of NCCL, all arguments resolved.
struct call {
  op_kind what = op_kind::barrier;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;  // as NCCL counts: of one share, where each rank has a share
  ncclDataType_t type = ncclUint8;
  std::size_t width = 1;  // bytes of one of `count`
  operator_value op{};
  int root = 0;  // or the peer
  // Instead of a call of NCCL:
  cudaGraphExec_t graph = nullptr;  // what has been captured is launched
  bool elsewhere = false;           // nothing: the operation's work is on streams of its own
};

/// A buffer of an operation.
struct buffer_use {
  const char* field;  // for reports
  const void* data;
  std::size_t bytes;
  int device;
  std::optional<device::stream> producer;  // what it has queued comes first
  std::shared_ptr<const void> lease;       // null: borrowed, must outlive the operation
  std::error_code unusable{};              // why there is no producer
};

/// What an operation does beside its calls of NCCL. Called with the source's lock held; what is
/// thrown ends the operation's communicator.
class work_steps {
 public:
  /// It is at the head of the queue, and no call is in progress: the last moment to say what is
  /// called, and to let the stream of the device wait.
  virtual void prepare(const device::stream& domain) = 0;
  /// Where its calls go.
  [[nodiscard]] virtual cudaStream_t calls_on(const device::stream& domain) const {
    return domain.get();
  }
  /// Its calls are in that stream. Returns the mark of its end.
  [[nodiscard]] virtual device::event conclude(const device::stream& domain) = 0;
  /// It has failed before its end: adds what it uses beside `uses` of the operation. Returns the
  /// end of what it has queued on other streams so far.
  [[nodiscard]] virtual std::optional<device::event> give_up(std::vector<buffer_use>& used) = 0;
  /// It has ended, and the lap is about to. True: this object is gone, or goes on by itself.
  /// False: it is to be delivered.
  [[nodiscard]] virtual bool end_in_lap() = 0;

 protected:
  ~work_steps() = default;
};

/// An operation in the issuing queue of its device.
class work : public progress::operation {
 public:
  [[nodiscard]] std::error_code error() const noexcept { return error_; }
  void fail(std::error_code why) noexcept {
    if (!error_) error_ = why;
  }

  std::shared_ptr<communicator_state> comm;
  const char* verb = "";
  std::uint64_t sequence = 0;
  bool everybody = true;         // all ranks start it, in one order
  std::uint64_t collective = 0;  // its number among those, when it has been taken over
  std::size_t bytes = 0;
  until ends = until::complete;
  call one;                // if `more` is empty
  std::vector<call> more;  // posted as one group
  std::vector<buffer_use> uses;
  std::vector<device::event> after;    // recorded when the operation was started
  std::optional<device::stream> user;  // the stream that the caller named
  work_steps* steps = nullptr;
  std::shared_ptr<work_set> joined;  // the parts, if the operation is made of parts
  work_set* part_of = nullptr;       // if it is one of the parts of another
  progress::pending_age age;         // since it was started
  tools::range watched;              // while somebody awaits it

  /// "  rank 0: nccl all_reduce #3, bytes=4, device=0, queued, for 12 ms"
  [[nodiscard]] std::string line(const char* stands) const;

  // Of the source.
  bool pending = false;                 ///< the source has it
  bool overdue = false;                 ///< a deadline that aborts has passed over it
  std::vector<ncclRedOp_t> reductions;  ///< to be destroyed when the launch is done

 protected:
  explicit work(function run) noexcept : operation(run) {}
  ~work() = default;

 private:
  std::error_code error_;
};

/// An operation on one device that belongs to a whole, which is what somebody waits for.
class partial_work final : public work {
 public:
  partial_work() noexcept : work(&never) {}

 private:
  static void never(progress::operation*, action) {}
};

/// The parts of one operation, each in the queue of its device. They are posted when all of them
/// are at the head; the operation ends when all of them have ended, with the first error.
struct work_set {
  explicit work_set(work& all) noexcept : whole(&all) {}
  work* whole;
  std::deque<partial_work> parts;
  std::size_t left = 0;   // parts that have not ended
  bool launched = false;  // all communicators of the group have said success

  /// With the lock of the source held: each part is at the head of its queue.
  [[nodiscard]] bool is_together() const;
  /// For one that has launched: the state of the calls of the others, and which communicator `of`
  /// theirs has answered so.
  [[nodiscard]] ncclResult_t state_of_others(communicator_state*& of);
  /// Posts them by one group, and returns how many operations have ended by that.
  std::size_t post(progress::ready_queue& ready);
};

}  // namespace cohort::nccl

#endif
