// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How communicators end: brought down by a failure, or in order.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/tool_range.hpp>
#include <cohort/nccl/life/state.hpp>
#include <cohort/progress/engine.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::nccl {

class device_queue;

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
                  bool tell_peers = true);
  /// Brings down these and no others. One thread aborts them in one group.
  void bring_down(const communicators& all, std::error_code why, const std::string& text);
  /// `only_this`: leaves the other communicators alone, but for those `together` with it.
  void fall(communicator_state& comm, std::error_code why, const std::string& text, bool only_this,
            bool tell_peers, const communicators& together = {});
  /// For a device that was lost or reset: nothing is called and nothing freed there any more.
  void device_gone(device_queue& one);
  /// Ends everything of a device without a call of NCCL.
  void up_to_here(device_queue& one, std::error_code why, phase then, const std::string& text,
                  std::vector<work*>& ended);
  /// Destroys one that has been finalised, on a thread, because that may wait for the device.
  void destroy(const std::shared_ptr<communicator_state>& comm);

  [[nodiscard]] std::size_t pending() const noexcept { return jobs_.size(); }
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
  struct job {
    std::shared_ptr<thread_call> call = std::make_shared<thread_call>();
    communicators comms;
    bool aborts = false;  // not: destroys
    clock::time_point until{};
    clock::time_point captures_until{};
    std::vector<work*> ended;  // delivered when it is done
    std::thread thread;        // none: there is nothing to do, or the process cannot have one more
    tools::range watched;

    /// If the process cannot have a thread more, the job is taken to have run out of time.
    void start();
    /// A thread that still runs ends by itself.
    void let_go();
  };
  static std::string last_lines(const communicator_state& comm);
  void conclude(job& one, bool done, std::vector<work*>& ended);

  static constexpr auto capture_grace = std::chrono::milliseconds(200);
  issue_source& source_;
  std::vector<std::unique_ptr<job>> jobs_;
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
