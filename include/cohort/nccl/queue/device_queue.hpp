// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The queue of one device: what calls NCCL there, in which order; and one operation as the queue
/// sees it: the calls of NCCL that it is made of, the memory and the streams that it touches, and
/// where it stands.
///
/// The room `queue` has what is issued to devices. Operations enter it with their streams marked;
/// they leave it when the device has done them, or with the error that `life` gives them.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/devices.hpp>
#include <cohort/core/kinds.hpp>
#include <cohort/core/tool_range.hpp>
#include <cohort/device/error.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/device/vector.hpp>
#include <cohort/nccl/faults/message.hpp>
#include <cohort/nccl/types.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/polled_source.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
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
class work_hooks {
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
  ~work_hooks() = default;
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
  work_hooks* hooks = nullptr;
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

// ---- the queue -------------------------------------------------------------------------------

/// A place in the queue of a device.
struct queue_place {
  bool come = false;  ///< it is at the head
  bool over = false;  ///< the next one may come
};

/// What stands in the queue of a device.
struct queue_entry {
  work* op;
  std::shared_ptr<queue_place> place;  ///< or this
};

/// Who may use a device: one context of the process, and of its orderers one, if that wants to be
/// alone.
class device_access {
 public:
  device_access() noexcept {}
  ~device_access() {
    if (claimed_ != nullptr) *claimed_ = nullptr;
  }
  device_access(const device_access&) = delete;

  /// For this context, as long as this object lives. False if the device is another one's.
  [[nodiscard]] bool claim(int device, const issue_source& by);
  /// Whether an orderer may start operations.
  [[nodiscard]] bool admits(const void* orderer) const noexcept {
    return holder_ == nullptr || holder_ == orderer;
  }
  /// From now on no other is admitted. False if another one has said so before.
  [[nodiscard]] bool hold(const void* orderer) noexcept {
    if (admits(orderer)) holder_ = orderer;
    return holder_ == orderer;
  }
  /// Ends that; does nothing if `orderer` was not the holder.
  void let_go(const void* orderer) noexcept {
    if (holder_ == orderer) holder_ = nullptr;
  }

 private:
  std::atomic<const issue_source*>* claimed_ = nullptr;
  const void* holder_ = nullptr;  // null: anybody
};

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
  /// Makes it the call at hand; an operation with hooks of its own says what is to be called.
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

  device_access access;

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
