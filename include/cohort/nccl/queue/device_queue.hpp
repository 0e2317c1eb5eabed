// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The queue of one device: what calls NCCL there, in which order.
///
/// The room `queue` has what is issued to devices. Operations enter it with their streams marked;
/// they leave it when the device has done them, or with the error that `life` gives them.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/device/vector.hpp>
#include <cohort/nccl/life/state.hpp>
#include <cohort/nccl/queue/work.hpp>
#include <cohort/progress/engine.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

namespace cohort::nccl {

class issue_source;

/// Communicators are non-blocking ones: a call answers "in progress", and a thread of NCCL launches
/// the kernel. Until the communicator says success, nothing else is called on the device, or the
/// launches of two communicators could swap; and nothing is put on the stream, or an event would
/// come before the kernel. So each device has one queue, over all communicators:
///
/// 1. an operation is started: the caller's stream and those of the buffers are marked with
///    events, and it is queued;
/// 2. at the head of the queue: the stream of the device waits for these events, NCCL is called;
/// 3. each look of the source asks for the state of that call, until it is success;
/// 4. an event is recorded behind it; with until::enqueued the caller's stream waits for that event
///    and the operation ends; the next one is issued;
/// 5. each look asks for the event of the oldest operation. When it is there, the memory that the
///    operation has held is let go, and it ends.
///
/// All with the lock of the source held.
class device_queue {
 public:
  device_queue(issue_source& source, int device)
      : source_(source), device_(device), generation_(device::state_of(device).generation()) {}

  [[nodiscard]] int device() const noexcept { return device_; }
  /// The stream of high priority on which all operations of the device run; made by the first call.
  /// Throws std::system_error if calls there are not safe any more.
  const device::stream& open();
  /// One element for the barriers of all communicators of the device, when that has its stream. A
  /// communicator with memory of its own would give it back to the stream whenever it ends, also
  /// while a call there is in progress.
  [[nodiscard]] std::int32_t* scratch() noexcept { return scratch_.data(); }
  /// Whether the device's context in which the stream was made has gone.
  [[nodiscard]] bool is_gone() const {
    return domain_ && !device::state_of(device_).holds(generation_);
  }
  /// Asks CUDA: the stream was good once, so if CUDA refuses it, somebody has reset the device.
  void ask_whether_gone();
  /// A call has not come back: none is made in this context any more.
  [[nodiscard]] std::error_code why_unusable() const {
    return device::state_of(device_).holds(generation_) ? lost_ : std::error_code();
  }
  [[nodiscard]] bool is_lost() const noexcept { return static_cast<bool>(lost_); }
  void lose(std::error_code why) noexcept { lost_ = why; }

  void push(work& op) { waiting_.push_back({&op, nullptr}); }
  [[nodiscard]] std::shared_ptr<queue_place> reserve() {
    auto place = std::make_shared<queue_place>();
    waiting_.push_back({nullptr, place});
    return place;
  }
  void append(std::list<queue_entry>& places) noexcept { waiting_.splice(waiting_.end(), places); }

  // 1. Asks for the state of the call at hand.
  // 2. Issues what is at the head, until something is in progress.
  // 3. Looks at the events.
  std::size_t advance(progress::ready_queue& ready);
  /// For operations that are posted together: whether this one may be posted.
  [[nodiscard]] bool is_at_head(const work& op) const noexcept {
    return !stopped_ && launching_ == nullptr && !waiting_.empty() && waiting_.front().op == &op;
  }
  [[nodiscard]] bool is_launching(const work& op) const noexcept { return launching_ == &op; }
  void take_head() { waiting_.pop_front(); }
  /// Makes it the call at hand; an operation with steps of its own says what is to be called.
  /// False: it has nothing to launch, and has ended. What is thrown leaves it the call at hand.
  [[nodiscard]] bool begin(work& op);
  ncclResult_t issue(work& op);

  /// Whether nothing of this library runs on the device or is on its way there.
  [[nodiscard]] bool is_drained() const noexcept {
    return flights_.empty() && launching_ == nullptr && !stopped_;
  }
  /// Whether a call may be made: none is in progress, and calls are not stopped.
  [[nodiscard]] bool is_free() const noexcept { return launching_ == nullptr && !stopped_; }
  [[nodiscard]] bool works_for(const communicator_state& comm) const noexcept;
  [[nodiscard]] std::size_t pending() const noexcept {
    return waiting_.size() + (launching_ != nullptr ? 1 : 0) + flights_.size();
  }
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Calls `function(work&, standing)` for all that have not ended, in their order.
  template <class Function>
  void for_each(Function function);

  /// No more calls: an abort is under way.
  void stop() noexcept { stopped_ = true; }
  /// The abort is over. The memory of aborted operations is free when the stream has come so far.
  void go_on();
  /// Takes the operations of one communicator, or of all, out of the queue and off the device's
  /// list. What they use on the device stays held.
  void collect(const communicator_state* only, std::error_code why, std::vector<work*>& ended);
  /// Does that for all of them, and holds nothing of theirs any more.
  void drop_all(std::error_code why, std::vector<work*>& ended);
  /// Takes out what has not been issued, and ends the places for which `is_given_up(place)`.
  template <class Test>
  void drop_waiting(std::error_code why, std::vector<work*>& ended, Test is_given_up);
  /// The engine ends. What the device works on, it may work on for ever.
  void leak(std::vector<work*>& ended);
  /// After the context has gone: nothing of it is used or freed.
  void forget_context(std::error_code why) noexcept;

  const void* orderer = nullptr;  ///< the only one that may start operations; null: anybody
  [[nodiscard]] bool admits(const void* other) const noexcept {
    return orderer == nullptr || orderer == other;
  }

 private:
  /// What the device works on, or may work on.
  struct flight {
    std::shared_ptr<communicator_state> comm;
    device::event mark;  // invalid: not recorded yet, because an abort is under way
    work* op = nullptr;  // null: it has ended already
    std::vector<buffer_use> uses;
    std::optional<device::event> ahead{};  // must be reached as well, where there is no mark yet
  };
  std::size_t launched(progress::ready_queue& ready);
  std::size_t land(progress::ready_queue& ready);
  void mark_what_aborts_left();
  void fall_with(communicator_state& comm, const detail::problem& bad);
  void give_up(work& op, std::error_code why);

  issue_source& source_;
  int device_;
  std::uint32_t generation_;
  std::optional<device::stream> domain_;
  device::vector<std::int32_t> scratch_;
  std::list<queue_entry> waiting_;
  work* launching_ = nullptr;
  std::deque<flight> flights_;
  bool stopped_ = false;
  std::error_code lost_;
};

template <class Function>
void device_queue::for_each(Function function) {
  for (flight& each : flights_) {
    if (each.op != nullptr) function(*each.op, standing::on_device);
  }
  if (launching_ != nullptr) function(*launching_, standing::launching);
  for (queue_entry& each : waiting_) {
    if (each.op != nullptr) function(*each.op, standing::queued);
  }
}

template <class Test>
void device_queue::drop_waiting(std::error_code why, std::vector<work*>& ended, Test is_given_up) {
  for (queue_entry& each : waiting_) {
    if (each.op == nullptr) {
      if (is_given_up(each.place)) each.place->over = true;
      continue;
    }
    give_up(*each.op, why);
    ended.push_back(std::exchange(each.op, nullptr));
  }
  std::erase_if(waiting_, [](const queue_entry& each) { return !each.place; });
}

}  // namespace cohort::nccl

#endif
