// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The issuing queue of each device: what calls NCCL, in which order, and sees what becomes of it.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/asio.hpp>
#include <cohort/core/tool_range.hpp>
#include <cohort/device/vector.hpp>
#include <cohort/nccl/error.hpp>
#include <cohort/nccl/state.hpp>
#include <cohort/nccl/work.hpp>
#include <cohort/nccl/work_set.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/stall_watch.hpp>

#include <asio/strand.hpp>

#include <array>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace cohort::nccl {

/// A place in the queue of a device. From the moment it is at the head until it is given back no
/// operation behind it is issued.
class turn {
 public:
  turn() noexcept {}
  turn(turn&& other) noexcept : place_(std::move(other.place_)), source_(other.source_) {}
  turn& operator=(turn&& other) noexcept {
    std::swap(place_, other.place_);
    std::swap(source_, other.source_);
    return *this;
  }
  ~turn() { release(); }
  void release() noexcept;
  /// With the source's lock held.
  [[nodiscard]] bool has_come() const noexcept { return !place_ || place_->come; }

 private:
  friend class issue_source;
  turn(std::shared_ptr<queue_place> where, issue_source& source) noexcept
      : place_(std::move(where)), source_(&source) {}
  std::shared_ptr<queue_place> place_;
  issue_source* source_ = nullptr;
};

/// The source of an engine that issues the operations on devices and polls them. One per context,
/// found with `asio::use_service<issue_source>(io)`.
///
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
/// The engine looks once a lap while MPI has something pending, else a few times.
///
/// *Threads*: every function from any thread. Calls of NCCL are made by who laps.
class issue_source : public asio::execution_context::service {
 public:
  using key_type = issue_source;
  static inline asio::execution_context::id id;
  using clock = progress::engine::clock;

  /// For `asio::use_service`. A template, as that of the engine is.
  template <std::derived_from<asio::execution_context> Context>
  explicit issue_source(Context& context);
  COHORT_INLINE ~issue_source() override;

  [[nodiscard]] progress::engine& engine() const noexcept { return engine_; }

  /// Takes over an operation whose events are recorded. It ends with an error at once if its
  /// communicator cannot be used.
  void submit(work& op);
  /// The same inside `exclusively`. False: it has ended, and the caller is to deliver it.
  [[nodiscard]] bool submit_held(work& op);
  /// The parts of an operation, each to the queue of its device at once, so that their places among
  /// the operations of all devices are the same. All of them or none.
  void submit_parts(work& whole);
  /// A deadline has passed over it: reports, and brings the communicators down by option.
  /// False: it has not entered the queue of its device.
  bool deadline_passed(work& op);

  /// Asks the ranks where they stand, about what is not in the queue of a device. Inside
  /// `exclusively`. `tell` is called in a look with the lock held; at once if nobody can be asked.
  /// False: another question is under way.
  bool inquire(communicator_state& comm, std::function<void(const std::string&)> tell);

  /// A place at the end of the device's queue.
  [[nodiscard]] turn reserve(int device);
  /// The stream of high priority on which all operations of the device run.
  [[nodiscard]] device::stream domain_of(int device);
  /// One element for the barriers of all communicators of the device, when that has its stream. A
  /// communicator with memory of its own would give it back to the stream whenever it ends, also
  /// while a call there is in progress.
  [[nodiscard]] std::int32_t* scratch_of(int device) {
    const std::lock_guard hold(mutex_);
    return queue_of(device).scratch.data();
  }
  void add(std::shared_ptr<communicator_state> comm);
  /// A device is issued to by one context as long as that lives. Throws
  /// error(errc::single_thread_violation) if it is another one, and error(errc::stalled) if NCCL
  /// has not come back from an abort there.
  void claim(int device);
  /// From now on operations of communicators with another `orderer` are refused on the device with
  /// errc::device_ordered. False if somebody else has done that.
  [[nodiscard]] bool hold(int device, const void* orderer);
  /// Ends that. No matter if it was not the holder.
  void let_go(int device, const void* orderer);
  /// Whether communicators of this orderer may be made on the device.
  [[nodiscard]] bool admits(int device, const void* orderer);
  /// Whether another coordinator has another device of this process.
  [[nodiscard]] bool is_held_elsewhere(int device, const void* orderer) const;
  /// Nothing of this library runs on the device or is on its way there. Inside `exclusively`, or in
  /// a condition of `when`.
  [[nodiscard]] bool is_drained(int device) {
    const queue& one = queue_of(device);
    return one.flights.empty() && one.launching == nullptr && !one.stopped;
  }
  /// Runs `function` while nobody else calls NCCL through this source.
  template <class Function>
  auto exclusively(Function function) {
    const std::lock_guard hold(mutex_);
    return function();
  }

  /// Its operations end, then it is finalised and destroyed, without a host that waits.
  void leave(communicator_state& comm);
  /// The ladder: see `fail` below. `only_this`: leaves the other communicators alone.
  void bring_down(communicator_state& comm, std::error_code why, const std::string& text,
                  bool only_this, bool tell_peers);
  /// The same for these, which one thread aborts in one group, and no others.
  void bring_down(const std::vector<std::shared_ptr<communicator_state>>& all, std::error_code why,
                  const std::string& text);
  /// Posts the receive through which peers tell of faults.
  void listen(const std::shared_ptr<communicator_state>& which);

  /// Completes when `condition()`, called at each lap with the lock held, is true; with
  /// operation_aborted if the engine ends before. `void(std::error_code)`. Not to be cancelled.
  template <class Token>
  auto when(std::function<bool()> condition, Token&& token);

  /// What waits for a condition.
  class condition_base : public progress::operation {
   public:
    std::function<bool()> holds;
    std::error_code error;
    /// Called by the lap with the lock held, instead of a delivery by the loop.
    void (*in_lap)(condition_base*) = nullptr;
    bool bounded = false;  // not given up when the engine ends

   protected:
    using operation::operation;
    ~condition_base() = default;
  };
  /// Takes it over. Inside a lap as well.
  void wait_for(condition_base& one);
  /// Calls it inside the next look, where handlers are no longer run too.
  void at_next_look(std::function<void()> what);
  /// Operations with steps of their own that have ended outside a look: the next one ends them.
  void end_at_next_look(const std::vector<work*>& ended);
  /// The engine ends: what is made now is of no use.
  [[nodiscard]] bool is_ending() const {
    const std::lock_guard hold(mutex_);
    return ending_;
  }

  // poll_source and its options: called by the engine.
  static constexpr bool is_dear = true;
  bool begin_lap(progress::ready_queue&) {
    mutex_.lock();
    return true;
  }
  std::size_t test(progress::ready_queue& ready);
  void end_lap() noexcept { mutex_.unlock(); }
  [[nodiscard]] std::size_t pending() const noexcept {
    return pending_.load(std::memory_order_relaxed);
  }
  /// For the time that is spent spinning, which counts a nanosecond for each byte of a host. What
  /// devices move in one is an estimate, not measured.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return in_flight_.load(std::memory_order_relaxed) / bytes_per_host_byte;
  }
  [[nodiscard]] std::chrono::nanoseconds longest_nap() const noexcept {
    return pending() == 0 ? std::chrono::nanoseconds::max() : engine_.options().nap;
  }
  void leave();
  void end();
  void abandon() {}
  void describe(std::string& text);
  void tick(clock::time_point now);

 private:
  friend class turn;

  /// What the device works on, or may work on.
  struct flight {
    std::shared_ptr<communicator_state> comm;
    device::event mark;  // invalid: not recorded yet, because an abort is under way
    work* op = nullptr;  // null: it has ended already
    std::vector<buffer_use> uses;
    std::optional<device::event> ahead{};  // then, too, where there is no mark yet
  };
  using entry = queue_entry;
  struct queue {
    int device = -1;
    std::uint32_t generation = 0;
    std::optional<device::stream> domain;
    device::vector<std::int32_t> scratch;
    std::list<entry> waiting;
    work* launching = nullptr;
    std::deque<flight> flights;
    bool stopped = false;  // an abort is under way
    const void* orderer = nullptr;
    std::error_code lost;  // a call has not come back: no more of them in this context
  };
  template <class Handler>
  class condition_operation;
  struct start_condition;
  class call_at_look;

  /// What a helper thread does, which has a share of it: it may outlive the source.
  struct abort_call {
    std::vector<ncclComm_t> natives;
    int device = 0;
    std::atomic<bool> done{false};
  };
  /// Communicators that must go, and what waits for that.
  struct abort_job {
    std::shared_ptr<abort_call> call = std::make_shared<abort_call>();
    std::vector<std::shared_ptr<communicator_state>> comms;
    bool aborts = false;  // not: destroys
    clock::time_point until{};
    clock::time_point captures_until{};
    std::vector<work*> ended;  // delivered when it is done
    std::thread thread;        // none: there is nothing to do, or the process cannot have one more
    tools::range watched;

    /// `what` is to set `done` of the call. Without a thread the time of the job is over at once.
    template <class Function>
    void start(Function what) {
      try {
        thread = std::thread(std::move(what));
      } catch (const std::system_error&) {
        until = clock::time_point::min();
      }
    }
    /// A thread that still runs ends by itself.
    void let_go() {
      if (!thread.joinable()) return;
      if (call->done.load()) {
        thread.join();
      } else {
        thread.detach();
      }
    }
  };

  inline void shutdown() override {}

  static std::array<std::atomic<issue_source*>, device::detail::most_devices>& owners() {
    static std::array<std::atomic<issue_source*>, device::detail::most_devices> all{};
    return all;
  }
  // See detail/source.ipp.
  queue& queue_of(int device);
  std::size_t advance(queue& one, progress::ready_queue& ready);
  ncclResult_t issue(queue& one, work& op);
  bool prepared(queue& one, work& op);
  std::size_t launched(queue& one, progress::ready_queue& ready);
  std::size_t land(queue& one, progress::ready_queue& ready);
  std::size_t finish(work& op, progress::ready_queue& ready);
  static void mark_what_aborts_left(queue& one);
  void fall_with(queue& one, communicator_state& comm, const detail::problem& bad);
  void ask_for_errors();
  static bool is_gone(const queue& one);
  static std::error_code why_unusable(const queue& one);
  std::error_code why_refused(const queue& one, const communicator_state& comm) const;
  void recount() noexcept;
  template <class Function>
  void for_each_pending(Function function);
  static std::string line_about(const work& op, const char* stands);
  // See detail/work_set.ipp.
  bool is_together(const work_set& set);
  std::size_t issue_parts(work_set& set, progress::ready_queue& ready);
  ncclResult_t state_of_launch(work& op, communicator_state*& of);
  static work* concluded(work& op) noexcept;
  // See detail/failure.ipp.
  std::string pending_lines();
  static std::string last_lines(const communicator_state& comm);
  static void give_up(queue& one, work& op, std::error_code why);
  void collect(queue& one, const communicator_state* only, std::error_code why,
               std::vector<work*>& ended);
  void fall(communicator_state& comm, std::error_code why, const std::string& text, bool only_this,
            bool tell_peers, const std::vector<std::shared_ptr<communicator_state>>& together = {});
  void up_to_here(queue& one, std::error_code why, phase then, const std::string& text,
                  std::vector<work*>& ended);
  void device_gone(queue& one);
  void ask_whether_gone(queue& one);
  std::size_t look_at_aborts(progress::ready_queue& ready);
  // See detail/fault_channel.ipp.
  friend class fault_channel;
  void tell(const std::shared_ptr<communicator_state>& comm, std::error_code why,
            const std::string& text, bool only_this);
  std::shared_ptr<communicator_state> hear(const communicator_state& comm,
                                           const std::optional<fault_message>& message, int from);
  void send_to(const std::shared_ptr<communicator_state>& comm, fault_message&& message, int only);
  void silence(const std::shared_ptr<communicator_state>& comm);
  void close(std::shared_ptr<fault_channel> which);
  void part(const std::shared_ptr<communicator_state>& comm);
  std::shared_ptr<communicator_state> goes_on_parting(const communicator_state& comm, bool fails);
  void look_at_partings();
  std::vector<parting> let_partings_go();
  /// What is still waited for comes without handlers.
  [[nodiscard]] bool is_in_place() const { return in_place_ || engine_.stopped(); }
  static bool is_up(const communicator_state& comm) noexcept;
  std::shared_ptr<communicator_state> sister_up(const communicator_state& comm) const;
  // See detail/inquiry.ipp.
  bool ask(communicator_state& comm, const work& op, const std::string& about, std::error_code why,
           bool aborts);
  void send_question(communicator_state& comm);
  void answer(const communicator_state& comm, std::uint64_t number, int asker);
  void note_answer(const communicator_state& comm, position_answer&& said);
  rank_position position_of(const communicator_state& comm);
  void look_at_inquiries();
  // See detail/leaving.ipp.
  void take_leave(communicator_state& comm);
  static void let_next_come(communicator_state& comm) noexcept;
  std::size_t look_at_leaving(progress::ready_queue& ready);

  progress::engine& engine_;
  /// What uses fault channels, which take MPI's lock: without this source's, and in order, for what
  /// is said last has to leave before a channel closes, also where several threads run the loop.
  asio::strand<asio::io_context::executor_type> to_peers_;
  // Held for a whole lap, in which the source of MPI may start operations here.
  mutable std::recursive_mutex mutex_;
  std::uint32_t seen_changes_ = 0;  // of devices
  bool ending_ = false;
  bool in_place_ = false;
  std::deque<queue> queues_;  // references stay good
  std::vector<std::shared_ptr<communicator_state>> comms_;
  std::vector<work*> ended_in_lap_;  // those with steps of their own
  std::vector<condition_base*> conditions_;
  std::vector<std::unique_ptr<abort_job>> aborts_;
  std::size_t leaving_ = 0;
  std::vector<parting> partings_;
  static constexpr int every_peer = -1;
  std::uint64_t questions_ = 0;
  static constexpr auto longest_hold = std::chrono::seconds(1);
  static constexpr clock::duration longest_step = std::chrono::milliseconds(10);
  static constexpr auto capture_grace = std::chrono::milliseconds(200);
  static constexpr auto error_period = std::chrono::milliseconds(2);
  clock::time_point last_asked_{};
  std::atomic<std::size_t> pending_{0};
  static constexpr std::size_t bytes_per_host_byte = 32;
  std::atomic<std::size_t> in_flight_{0};  // bytes of operations
  progress::stall_watch stalls_;
};

}  // namespace cohort::nccl

#include <cohort/nccl/detail/condition_operation.hpp>

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/nccl/detail/calls.ipp>
#include <cohort/nccl/detail/conditions.ipp>
#include <cohort/nccl/detail/failure.ipp>
#include <cohort/nccl/detail/fault_channel.ipp>
#include <cohort/nccl/detail/inquiry.ipp>
#include <cohort/nccl/detail/leaving.ipp>
#include <cohort/nccl/detail/source.ipp>
#include <cohort/nccl/detail/work_set.ipp>
#endif

#endif
