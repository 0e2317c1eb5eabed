// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Does what has been elected: starts it in log order, packs, posts to a backend or MPI,
/// unpacks. Tasks enter the room `data` in log order; their results leave.

#include <cohort/comm/backend.hpp>
#include <cohort/coordinator/data/execution.hpp>
#include <cohort/coordinator/instance.hpp>
#include <cohort/protocol/queues.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <system_error>
#include <vector>

namespace cohort::coordination {

/// Owns the communicators of a negotiation and the executions in progress on them. Everything here
/// runs with the request source locked.
template <class Any>
class basic_data_plane {
 public:
  /// Who is told.
  class client {
   public:
    virtual void data_done(execution& what) noexcept = 0;
    /// Something of it has been started.
    virtual void data_started(const execution& what,
                              comm::path_statistics coordinator_statistics::* by,
                              std::size_t bytes) noexcept = 0;
    /// Something of an operation could not be posted here, and MPI still works on other parts. The
    /// tasks are not complete: `data_failed` follows, or the operation is given up.
    virtual void data_failing(execution& what, std::error_code why) noexcept = 0;
    /// An operation has failed here, and MPI has nothing of it; its tasks are not complete.
    virtual void data_failed(execution& what, std::error_code why) noexcept = 0;

   protected:
    ~client() = default;
  };

  basic_data_plane(client& owner, const coordinator_options& options, std::uint32_t slots)
      : fusion(fusion_memory(options)), owner_(owner), options_(options), queue_(slots) {}

  /// From now on what is pushed, or has been, can run. There is one backend at most.
  void open(comm::communicator_state& on, comm::any_backend* backend,
            comm::device_backend* device = nullptr) {
    state_ = &on;
    backend_ = backend;
    device_ = device;
  }

  /// An execution to fill in.
  [[nodiscard]] execution& make(const set_place& here) {
    if (free_.empty()) {
      all_.push_back(std::make_unique<execution>(*this));
      free_.reserve(all_.size());
      all_.back()->here = &here;
      return *all_.back();
    }
    execution* one = free_.back();
    free_.pop_back();
    one->here = &here;
    return *one;
  }
  /// In log order. Where it throws std::bad_alloc nothing must be started any more.
  void push(execution& what) {
    what.prepare();
    protocol::start_queue::item item;
    item.set = what.here->set;
    item.log_count = what.log_count;
    item.exchanges = what.exchanges();
    item.later_parts = what.later_parts();
    item.reference = what.known ? what.rows->log_count : 0;
    item.owner = &what;
    queue_.push(item);
  }
  /// Takes back what was made and not pushed.
  void recycle(execution& what) {
    what.reset();
    free_.push_back(&what);
  }
  /// Starts what can be started. To be called again when a slot is free or sizes are known; the
  /// operation that had the slot, or exchanged the sizes, may go on meanwhile.
  void run() noexcept {
    if (running_ || state_ == nullptr) return;
    running_ = true;
    while (queue_.ready()) {
      execution& next = *static_cast<execution*>(queue_.head().owner);
      if (next.log_count > holds_behind_) break;
      // The operation that is the oldest on all ranks always starts, so a rank that holds others
      // back stops nobody.
      next.load_ = next.load();
      if (bytes_under_way_ != 0 && next.load_ != 0 &&
          bytes_under_way_ + next.load_ > options_.bytes_in_flight) {
        break;
      }
      ++under_way_;
      bytes_under_way_ += next.load_;
      try {
        const auto started = queue_.next();
        next.start(started.slot);
        if (next.packs_.calls.size() > 1 && next.packs_.all_posted()) {
          queue_.posted_last(next.here->set, started.slot);
        }
      } catch (const std::system_error& problem) {
        next.fail(problem.code());
      } catch (...) {
        next.fail(std::make_error_code(std::errc::not_enough_memory));
      }
      settle(next);
    }
    running_ = false;
  }
  /// What has not been started never will be: they come back through `visit`.
  template <class Visit>
  void drop_waiting(Visit visit) {
    while (!queue_.empty()) {
      auto& one = *static_cast<execution*>(queue_.head().owner);
      queue_.drop_head();
      visit(one);
      recycle(one);
    }
  }
  /// What is under way ends with `why` before its next part.
  void post_no_more(std::error_code why) noexcept {
    for (const auto& one : all_) {
      if (!one->started_ || one->failed_) continue;
      if (!one->packs_.all_posted() || (one->exchanges() && !one->sizes_.exchanged)) {
        one->fail(why);
      }
    }
  }
  /// Leaves what is under way to MPI for good: with `all` everything, else what works on no memory
  /// of callers; what a device has only with `devices`. MPI goes on working on it, so this plane
  /// must never be destroyed. `visit` ends the tasks.
  template <class Visit>
  void give_up(bool all, bool devices, Visit visit) {
    std::size_t found = 0;
    for (const auto& one : all_) {
      if (!one->started_ || (one->device_.has_it ? !devices : !all && one->borrows())) continue;
      ++found;
      one->given_up_ = true;
      if (one->whole_.creation) one->whole_.creation->leave();
      one->started_ = false;
      one->watched_.end();
      --under_way_;
      bytes_under_way_ -= one->load_;
      visit(*one);
    }
    if (found == 0) return;
    const auto is_given_up = [this](const comm::request_operation& op) {
      const execution* owner = static_cast<const lane&>(op).owner;
      return owner != nullptr && &owner->plane_ == this && owner->given_up_;
    };
    // A backend that can forget a call touches its memory no more; the lane is nobody's then.
    std::erase_if(with_backend_, [&](lane* each) {
      if (!is_given_up(*each) || !backend_->forget(*each)) return false;
      delete each;
      return true;
    });
    std::erase_if(with_device_, [&](lane* each) {
      if (!is_given_up(*each) || !device_->forget(*each)) return false;
      delete each;
      return true;
    });
    state_->source.leave_to_mpi(&lane::advanced, [&](comm::request_operation& op) {
      if (!is_given_up(op)) return false;
      try {
        given_up_.push_back(static_cast<lane*>(&op));  // for tools that look for leaks
      } catch (...) {
      }
      return true;
    });
  }
  /// False where no device has the operation.
  bool deadline_passed(const task& over) {
    for (const lane* each : with_device_) {
      execution* const owner = each->owner;
      if (owner == nullptr || &owner->plane_ != this) continue;
      const auto& tasks = owner->tasks;
      if (std::find(tasks.begin(), tasks.end(), &over) == tasks.end()) continue;
      return device_->deadline_passed(*owner->device_.call);
    }
    return false;
  }
  [[nodiscard]] std::size_t under_way() const noexcept { return under_way_; }
  [[nodiscard]] std::size_t on_devices() const noexcept { return with_device_.size(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return queue_.size(); }
  /// Whether everything before a position of the log is complete here.
  [[nodiscard]] bool complete_before(std::uint64_t log_count) const noexcept {
    if (!queue_.empty() && queue_.head().log_count < log_count) return false;
    for (const auto& one : all_) {
      if (one->started_ && one->log_count < log_count) return false;
    }
    return true;
  }
  /// Starts nothing behind this position of the log.
  void hold_behind(std::uint64_t log_count) noexcept { holds_behind_ = log_count; }
  void hold_nothing() noexcept { holds_behind_ = UINT64_MAX; }
  /// Whether everything before it has been started.
  [[nodiscard]] bool started_what_it_may() const noexcept {
    return queue_.empty() || queue_.head().log_count > holds_behind_;
  }
  /// Whether nothing at a place waits or is under way.
  [[nodiscard]] bool idle_at(const set_place& place) const noexcept {
    for (const auto& one : all_) {
      if (one->here == &place) return false;
    }
    return true;
  }
  template <class Visit>
  void for_each_under_way(Visit visit) {
    for (const auto& one : all_) {
      if (one->started_) visit(*one);
    }
  }

  fusion_allocator fusion;
  bool traced = false;  ///< note when packs are filled and emptied

 private:
  friend basic_execution<Any>;
  friend basic_lane<Any>;
  friend packed_calls<Any>;
  friend whole_calls<Any>;
  friend sized_calls<Any>;
  friend device_calls<Any>;
  /// Ends what has no lane any more. What has failed is told of at once, though MPI still has
  /// parts.
  void settle(execution& what) noexcept {
    if (what.lanes_ != 0) {
      if (what.failed_) owner_.data_failing(what, what.failed_);
      return;
    }
    --under_way_;
    bytes_under_way_ -= what.load_;
    what.watched_.end();
    if (what.failed_) {
      owner_.data_failed(what, what.failed_);
    } else {
      owner_.data_done(what);
    }
    recycle(what);
  }

  client& owner_;
  const coordinator_options& options_;
  comm::communicator_state* state_ = nullptr;
  comm::any_backend* backend_ = nullptr;
  comm::device_backend* device_ = nullptr;
  protocol::start_queue queue_;
  std::vector<std::unique_ptr<execution>> all_;
  std::vector<execution*> free_;
  std::vector<lane*> with_backend_;
  std::vector<lane*> with_device_;
  std::vector<lane*> given_up_;
  std::size_t under_way_ = 0;
  std::size_t bytes_under_way_ = 0;
  std::uint64_t holds_behind_ = UINT64_MAX;
  bool running_ = false;
};

}  // namespace cohort::coordination
