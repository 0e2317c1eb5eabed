// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What issues the operations of all devices of a context and sees what becomes of them.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/asio.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/nccl/faults/channel.hpp>
#include <cohort/nccl/life/state.hpp>
#include <cohort/nccl/queue/device_queue.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/look_task.hpp>

#include <atomic>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// A place in the queue of a device. From the moment it is at the head until it is given back no
/// operation behind it is issued.
class turn {
 public:
  turn() noexcept {}
  turn(turn&& other) noexcept = default;
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

/// Awaited by a look task: a condition, asked for at each look with the lock of the source held.
/// When the engine ends, a condition that is `bounded` by itself is still waited for; for another
/// one the awaiting task gets operation_aborted.
class look_condition final : public progress::operation {
 public:
  look_condition(issue_source& source, std::function<bool()> condition, bool is_bounded = false)
      : operation(&run), holds(std::move(condition)), bounded(is_bounded), source_(source) {}
  look_condition(const look_condition&) = delete;

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> whose) {
    waits_ = whose;
    outermost_ = whose.promise().chain->outermost;
    begin();
  }
  void await_resume() const {
    if (error) throw std::system_error(error);
  }

  // For the source.
  const std::function<bool()> holds;
  const bool bounded;
  std::error_code error;
  void go_on() { deliver(); }

 private:
  void begin();
  static void run(progress::operation* base, action what) {
    auto* const self = static_cast<look_condition*>(base);  // part of a frame
    if (what == action::destroy) return self->outermost_.destroy();
    self->waits_.resume();
  }
  issue_source& source_;
  std::coroutine_handle<> waits_;
  std::coroutine_handle<> outermost_;
};

/// Those that have not come true yet. With the lock of the source held.
class look_conditions {
 public:
  void add(look_condition& one) { waiting_.push_back(&one); }
  [[nodiscard]] std::size_t pending() const noexcept { return waiting_.size(); }
  /// The tasks of those that hold, or have an error, go on. Returns how many.
  std::size_t look();
  /// All but the bounded ones get operation_aborted.
  void abort_unbounded() noexcept;
  /// Gives them up with that error: the caller is to deliver them.
  [[nodiscard]] std::vector<look_condition*> take_all(std::error_code why) noexcept;
  /// Destroys tasks that have begun after the last look.
  void destroy_all() noexcept;

 private:
  std::vector<look_condition*> waiting_;
};

namespace detail {

/// Begins the work at the next look: for a caller that holds the lock of the source.
template <class T>
progress::look_task<T> at_next_look(issue_source& source, progress::look_task<T> work) {
  look_condition look(source, [] { return true; }, true);
  co_await look;
  co_return co_await work;
}

/// Calls it inside the next look, also when handlers are no longer run.
inline progress::look_task<> call_at_look(issue_source& source, std::function<void()> what) {
  look_condition look(source, [] { return true; }, true);
  co_await look;
  what();
}

/// Waits until what the stream has queued so far is over. Throws if the device has failed.
inline progress::look_task<> reached(issue_source& source, device::stream on) {
  const device::event mark = on.record();
  cudaError_t code = cudaErrorNotReady;
  look_condition over(
      source,
      [&] {
        code = mark.query();
        return code != cudaErrorNotReady;
      },
      true);
  co_await over;
  device::check(code, "cudaEventQuery", on.device());
}

}  // namespace detail

/// The source of an engine that issues the operations on devices and polls them. One per context,
/// found with `asio::use_service<issue_source>(io)`.
///
/// It has a `device_queue` for each device, where it is told how operations are issued, and
/// parts for what happens to communicators: `abort_ladder`, `departures`,
/// `fault_messages`, `inquiries`.
///
/// *Threads*: every function from any thread, but for those of parts, which are called with the
/// lock held. It is a recursive one because the source of MPI may start operations here in the lap
/// for which it is held. Calls of NCCL are made by the thread that laps.
class issue_source final : public progress::dear_source<std::recursive_mutex>,
                           public asio::execution_context::service {
 public:
  using key_type = issue_source;
  static inline asio::execution_context::id id;
  using clock = progress::engine::clock;

  /// For `asio::use_service`.
  template <std::derived_from<asio::execution_context> Context>
  explicit issue_source(Context& context);
  COHORT_INLINE ~issue_source() override;

  /// Takes over an operation whose events are recorded. It ends with an error at once if its
  /// communicator cannot be used. One that has parts gives each to the queue of its device at once,
  /// so that their places among the operations of all devices are the same; all of them or none.
  void submit(work& op);
  /// The same inside `exclusively`, without parts. False: it has ended, and the caller is to
  /// deliver it.
  [[nodiscard]] bool submit_held(work& op);
  /// A place at the end of the device's queue.
  [[nodiscard]] turn reserve(int device);
  /// See device_queue::open.
  [[nodiscard]] device::stream domain_of(int device) {
    const std::lock_guard hold(mutex_);
    return queue_of(device).open();
  }
  void add(std::shared_ptr<communicator_state> comm);
  /// Says that this context issues to the device. Only one may, as long as it lives. Throws
  /// error(errc::single_thread_violation) if another one does, and error(errc::stalled) if NCCL has
  /// not come back from an abort there.
  void claim(int device);
  /// From now on operations of communicators with another `orderer` are refused on the device with
  /// errc::device_ordered. False if somebody else has done that.
  [[nodiscard]] bool hold(int device, const void* orderer) {
    const std::lock_guard lock(mutex_);
    return queue_of(device).access.hold(orderer);
  }
  /// Ends that; does nothing if `orderer` was not the holder.
  void let_go(int device, const void* orderer) {
    const std::lock_guard lock(mutex_);
    queue_of(device).access.let_go(orderer);
  }
  /// Whether communicators of this orderer may be made on the device.
  [[nodiscard]] bool admits(int device, const void* orderer) {
    const std::lock_guard lock(mutex_);
    return queue_of(device).access.admits(orderer);
  }
  /// Whether another coordinator has another device of this process.
  [[nodiscard]] bool is_held_elsewhere(int device, const void* orderer) const;
  /// Whether nothing of this library runs on the device or is on its way there. Inside
  /// `exclusively`, or in a condition.
  [[nodiscard]] bool is_drained(int device) { return queue_of(device).is_drained(); }
  /// While it is held nobody else calls NCCL through this source.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> lock() const {
    return std::unique_lock(mutex_);
  }
  /// Runs `function` with that lock.
  template <class Function>
  auto exclusively(Function function) {
    const std::lock_guard hold(mutex_);
    return function();
  }
  /// Something new is to be looked at.
  void wake() { engine_.started(); }
  /// The same for callers that must not fail. Without memory the next look at the device finds it.
  void wake_if_possible() noexcept;

  /// Takes over a condition: its task goes on in the look that finds it true. Also inside a lap.
  void wait_for(look_condition& one);
  /// Inside `exclusively`: an operation with hooks of its own has ended outside a look. The next
  /// one, for which the caller wakes the engine, ends it.
  void end_at_next_look(work& ended);
  /// The engine ends: what is made now is of no use.
  [[nodiscard]] bool is_ending() const {
    const std::lock_guard hold(mutex_);
    return ending_;
  }

  // Called by the engine.
  COHORT_INLINE std::size_t test(progress::ready_queue& ready) override;
  /// For the time that the engine spends spinning: a nanosecond for each byte that a host moves.
  /// How many bytes a device moves in that time is an estimate, not measured.
  [[nodiscard]] std::size_t bytes() const noexcept override {
    return in_flight_.load(std::memory_order_relaxed) / bytes_per_host_byte;
  }
  COHORT_INLINE void leave() override;
  COHORT_INLINE void end() override;
  COHORT_INLINE void describe(std::string& text) override;
  void tick(clock::time_point now) override { questions_.tick(now); }

  // Its parts, and what they share. With the lock held.
  [[nodiscard]] abort_ladder& ladder() noexcept { return ladder_; }
  [[nodiscard]] departures& leaving() noexcept { return leaving_; }
  [[nodiscard]] fault_messages& messages() noexcept { return messages_; }
  [[nodiscard]] inquiries& questions() noexcept { return questions_; }
  [[nodiscard]] device_queue& queue_of(int device);
  [[nodiscard]] std::deque<device_queue>& queues() noexcept { return queues_; }
  /// From their making until they have gone.
  [[nodiscard]] std::vector<std::shared_ptr<communicator_state>>& comms() noexcept {
    return comms_;
  }
  /// An operation has ended in a lap. Returns how many are to be delivered by that.
  std::size_t finish(work& op, progress::ready_queue& ready);
  /// What is to be delivered now that this has ended, or null: other parts go on.
  static work* concluded(work& op) noexcept;
  void recount() noexcept;
  /// Whether handlers are no longer run, so that the rest is waited for in place.
  [[nodiscard]] bool is_in_place() const { return in_place_ || engine_.stopped(); }
  template <class Function>
  void for_each_pending(Function function) {
    for (device_queue& one : queues_) one.for_each(function);
  }

 private:
  inline void shutdown() override {}

  [[nodiscard]] std::error_code why_refused(const device_queue& one,
                                            const communicator_state& comm) const;
  [[nodiscard]] bool take_parts(work& whole);
  void ask_for_errors();

  std::uint32_t seen_changes_ = 0;  // of devices
  bool ending_ = false;
  bool in_place_ = false;
  std::deque<device_queue> queues_;  // references stay good
  std::vector<std::shared_ptr<communicator_state>> comms_;
  std::vector<work*> ended_in_lap_;  // those with hooks of their own
  look_conditions conditions_;
  abort_ladder ladder_;
  departures leaving_;
  fault_messages messages_;
  inquiries questions_;
  static constexpr auto error_period = std::chrono::milliseconds(2);
  clock::time_point last_asked_{};
  static constexpr std::size_t bytes_per_host_byte = 32;
  std::atomic<std::size_t> in_flight_{0};  // bytes of operations
};

}  // namespace cohort::nccl

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/nccl/faults/channel.ipp>
#include <cohort/nccl/life/ladder.ipp>
#include <cohort/nccl/queue/device_queue.ipp>
#include <cohort/nccl/queue/source.ipp>
#endif

#endif
