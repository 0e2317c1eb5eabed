// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What all handles of one NCCL communicator share, and how communicators end: brought down by a
/// failure, or in order.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/operation.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/tool_range.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/nccl/faults/message.hpp>
#include <cohort/nccl/queue/device_queue.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/engine.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// How a communicator is made. `on_deadline` and `config` must be equal on all ranks, which is
/// checked. Each rank has bounds of its own.
struct communicator_options {
  communicator_options() {}

  int device = -1;  ///< -1: device::default_device()
  /// What happens when a deadline passes over a started operation. `abort` ends the communicators
  /// of this process and tells the peers; the job goes on.
  cohort::on_deadline on_deadline = cohort::on_deadline::report;
  std::chrono::nanoseconds init_bound = std::chrono::seconds(120);  ///< for NCCL's own init
  std::chrono::nanoseconds leave_bound = std::chrono::seconds(30);  ///< then it is leaked
  std::chrono::nanoseconds abort_bound = std::chrono::seconds(30);  ///< then awaiters end anyway
  /// How long ranks that are asked where they stand may take before they are named silent.
  std::chrono::nanoseconds answer_bound = std::chrono::seconds(1);
  bool abort_borrowed = false;                    ///< a borrowed communicator may be aborted too
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;  ///< passed on, but for `blocking`, which is 0
};

/// Where a communicator stands.
enum class phase : std::uint8_t {
  making,      ///< NCCL's init is in progress, or has not begun
  ready,       ///< operations may be started
  leaving,     ///< its operations end, then it is finalised
  finalising,  ///< in progress
  failed,      ///< being aborted
  gone,        ///< destroyed, aborted or given back
  leaked       ///< it did not end in time
};

namespace detail {

/// What NCCL or CUDA may still touch when nobody waits for it any more: a few bytes for each init
/// that was given up, and for what was captured on a device that has gone. Never destroyed.
[[nodiscard]] inline progress::kept_objects& left_to_nccl() {
  static progress::kept_objects& instance = *new progress::kept_objects;
  return instance;
}

}  // namespace detail

class fault_channel;

/// Something that was captured of a communicator's operations. NCCL ends a communicator, aborts it
/// too, only when no graph has calls of it, so these end first, whoever holds them.
class captured {
 public:
  /// Gives back what it has, unless it is being captured. Whether there was a graph.
  virtual bool end() noexcept = 0;
  /// A capture that has not ended is given up.
  virtual void abandon() noexcept = 0;
  const std::string name;  ///< for reports

 protected:
  explicit captured(std::string whose) : name(std::move(whose)) {}
  ~captured() = default;
};

/// *Threads*: what is not said to be constant is guarded by the source.
class communicator_state : public std::enable_shared_from_this<communicator_state> {
 public:
  communicator_state(issue_source& owner, cohort::communicator over, communicator_options how)
      : source(owner), mpi(std::move(over)), options(how), rank(mpi.rank()), size(mpi.size()) {}

  communicator_state(const communicator_state&) = delete;
  ~communicator_state() { no_longer_launches(); }

  [[nodiscard]] bool is_up() const noexcept {
    const phase now = stands.load();
    return now != phase::failed && now != phase::gone && now != phase::leaked;
  }
  [[nodiscard]] bool is_leaving() const noexcept {
    const phase now = stands.load();
    return now == phase::leaving || now == phase::finalising;
  }
  /// Nothing of NCCL's is called on it any more.
  void end_as(phase then, std::error_code reason) noexcept {
    why = reason;
    stands = then;
    leaves.end();
    native = nullptr;
  }
  /// What is behind its leaving in the queue of the device.
  void let_next_come() noexcept {
    if (place) place->over = true;
  }
  /// From now on a peer's message about the failure may come, also when this rank has left.
  void set_failed() noexcept {
    has_failed = true;
    keep_mpi();
  }
  /// For one over which something may still come. Open MPI 4.1 would take it for a part of the next
  /// communicator to which it gives the same number, and crash if that has fewer ranks.
  void keep_mpi() noexcept {
    if (mpi) mpi.state()->keep();
  }
  /// It has ended, though its handle or a coroutine of it may live on.
  void no_longer_launches() noexcept {
    if (std::exchange(launches, false)) device::state_of(device).remove_launcher();
  }

  // Constant once it is ready.
  issue_source& source;
  cohort::communicator mpi;  ///< a duplicate of the one that it was made over
  communicator_options options;
  int rank;
  int size;
  /// With several devices in a process: the rank of the first device of each rank of `mpi`.
  std::vector<int> firsts;
  int device = -1;
  bool launches = false;  ///< the device counts it
  bool borrowed = false;
  bool native_exchange = false;          ///< NCCL has all_to_all, gather and scatter
  const void* orderer = nullptr;         ///< the coordinator that it belongs to, or null
  std::optional<device::stream> domain;  ///< where the operations run
  std::int32_t* scratch = nullptr;       ///< for barriers

  ncclComm_t native = nullptr;
  std::atomic<phase> stands{phase::making};
  std::error_code why;  ///< of what failed or closed
  bool has_failed = false;
  std::uint64_t sequence = 0;
  std::uint64_t collectives = 0;  ///< of the operations that all ranks start
  std::size_t outstanding = 0;    ///< operations that are queued, launching or on the device
  std::chrono::steady_clock::time_point leave_until{};
  std::chrono::steady_clock::time_point hold_until{};
  std::shared_ptr<queue_place> place;  ///< of its leaving, once it does
  /// The entry for that, made in advance: dropping the last handle must not fail for lack of
  /// memory.
  std::list<queue_entry> own_place;
  tools::range leaves;  ///< from then until NCCL has finalised it

  /// Logs and remembers.
  void remember(failure what);
  [[nodiscard]] failure last_failure() const {
    const std::lock_guard hold(failure_mutex_);
    return last_failure_;
  }

  /// The operations started last, for reports.
  struct record {
    const char* verb = nullptr;
    std::uint64_t sequence = 0;
    std::size_t bytes = 0;
  };
  void note(const work& op) noexcept {
    history_[op.sequence % history_.size()] = {op.verb, op.sequence, op.bytes};
  }
  [[nodiscard]] std::string history() const;
  [[nodiscard]] const record& last_started() const noexcept {
    return history_[sequence % history_.size()];
  }

  /// Of the same NCCL communicator: the other devices of this process.
  [[nodiscard]] bool is_sister(const communicator_state& other) const noexcept {
    return token != 0 && token == other.token;
  }
  /// The rank here of a rank of `mpi`: that of its first device.
  [[nodiscard]] int rank_of_process(int which) const noexcept {
    const auto index = static_cast<std::size_t>(which);
    return index < firsts.size() ? firsts[index] : which;
  }

  /// What was captured of its operations.
  std::vector<std::weak_ptr<captured>> graphs;
  /// Ends them, but for those that are being captured. `logs`: names in the log those that live.
  void end_graphs(bool logs) noexcept;
  /// A thread of NCCL may still be writing into a capture until it sees that the communicator is
  /// aborted.
  void abandon_captures() noexcept;

  // The fault channel.
  /// The same on all ranks, and of this communicator alone: a message may come late, when its MPI
  /// communicator has gone here and another one has taken its place.
  std::uint64_t token = 0;
  std::shared_ptr<fault_channel> channel;  ///< when the source knows of this
  std::optional<inquiry> asked;            ///< under way

 private:
  std::array<record, 8> history_{};
  mutable std::mutex failure_mutex_;
  failure last_failure_;
};

/// Brings communicators down.
///
/// 1. No more calls on the devices concerned. 2. Their operations are failed, before an abort lets
/// their events come. 3. The report. 4. Peers are told. 5. One helper thread aborts. 6. When it
/// has, or its bound has passed, the awaiters end.
///
/// With the lock of the source held, but for `bring_down`.
class abort_ladder {
 public:
  using communicators = std::vector<std::shared_ptr<communicator_state>>;

  explicit abort_ladder(issue_source& source) noexcept : source_(source) {}
  COHORT_INLINE ~abort_ladder();
  abort_ladder(const abort_ladder&) = delete;
  abort_ladder& operator=(const abort_ladder&) = delete;

  /// Brings down this one, and those of the same communicator on other devices of this process.
  void bring_down(communicator_state& comm, std::error_code why, const std::string& text,
                  bool notify_peers = true);
  /// Brings down these and no others. One thread aborts them in one group.
  void bring_down(const communicators& all, std::error_code why, const std::string& text);
  /// `only_this`: leaves the other communicators alone, but for those `together` with it.
  void fall(communicator_state& comm, std::error_code why, const std::string& text, bool only_this,
            bool notify_peers, const communicators& together = {});
  /// For a device that was lost or reset: nothing is called and nothing freed there any more.
  void device_gone(device_queue& one);
  /// Ends everything of a device without a call of NCCL.
  void up_to_here(device_queue& one, std::error_code why, phase then, const std::string& text,
                  std::vector<work*>& ended);
  /// Destroys one that has been finalised, on a thread, because that may wait for the device.
  void destroy(const std::shared_ptr<communicator_state>& comm);

  [[nodiscard]] std::size_t pending() const noexcept { return removals_.size(); }
  std::size_t look(progress::ready_queue& ready);
  /// Nobody waits any longer for what threads do.
  void give_up(std::vector<work*>& ended);

 private:
  using clock = progress::engine::clock;
  /// What a helper thread does, which has a share of it: it may outlive the source.
  struct thread_call {
    std::vector<ncclComm_t> natives;
    int device = 0;
    std::atomic<bool> done{false};
  };
  /// Communicators that must go, and what waits for that.
  struct removal {
    std::shared_ptr<thread_call> call = std::make_shared<thread_call>();
    communicators comms;
    bool aborts = false;  // not: destroys
    clock::time_point until{};
    clock::time_point captures_until{};
    std::vector<work*> ended;  // delivered when it is done
    std::thread thread;        // none: there is nothing to do, or the process cannot have one more
    tools::range watched;

    /// If the process cannot have a thread more, the removal is taken to have run out of time.
    void start();
    /// A thread that still runs ends by itself.
    void let_go();
  };
  static std::string last_lines(const communicator_state& comm);
  void conclude(removal& one, bool done, std::vector<work*>& ended);

  static constexpr auto capture_grace = std::chrono::milliseconds(200);
  issue_source& source_;
  std::vector<std::unique_ptr<removal>> removals_;
};

/// Communicators that leave: their operations end, they are finalised and destroyed, without a host
/// that waits.
///
/// When their place in the queue has come and nothing of theirs is on the device, they are
/// finalised; when that is over, destroyed. The queue is held meanwhile, but not for ever: where
/// the ranks leave in another order than they start operations, finalising would wait for
/// operations that wait for it. It launches nothing, so going on does no harm.
///
/// With the lock of the source held, but for `leave`.
class departures {
 public:
  explicit departures(issue_source& source) noexcept : source_(source) {}

  void leave(communicator_state& comm);
  void begin(communicator_state& comm);
  /// How many are under way.
  [[nodiscard]] std::size_t pending() const noexcept;
  std::size_t look(progress::ready_queue& ready);

 private:
  using clock = progress::engine::clock;
  std::size_t leak(const std::shared_ptr<communicator_state>& comm, progress::ready_queue& ready);
  [[nodiscard]] bool finalise(communicator_state& comm);
  void go_on(const std::shared_ptr<communicator_state>& comm);

  static constexpr auto longest_hold = std::chrono::seconds(1);
  issue_source& source_;
};

}  // namespace cohort::nccl

#endif
