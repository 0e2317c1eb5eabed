// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The two ways of the data of staged operations, which go on in the looks of an engine.

#include <cohort/comm/backend.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/devices.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/polled_source.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::comm {

class round_trip;

/// Where another source's lock is held in the same lap.
struct no_lock {
  void lock() noexcept {}
  void unlock() noexcept {}
};

/// The source of an engine for operations that wait for their carrier. One per context that has had
/// such an operation, found with `asio::use_service<round_trip_source>(io)`.
///
/// *Threads*: the list is guarded by the source of MPI, which is looked at in the same lap and
/// before, so that an operation is posted inside the look that finds its data.
class round_trip_source final : public progress::dear_source<no_lock>,
                                public asio::execution_context::service {
 public:
  using key_type = round_trip_source;
  static inline asio::execution_context::id id;

  /// For `asio::use_service`. Throws error(errc::invalid_argument) if COHORT_STALL_WARNING is no
  /// duration.
  template <std::derived_from<asio::execution_context> Context>
  explicit round_trip_source(Context& context)
      : dear_source(asio::use_service<request_source>(context).engine()),
        asio::execution_context::service(context),
        requests_(asio::use_service<request_source>(context)) {
    engine_.attach(*this);
  }
  ~round_trip_source() override { engine_.detach(this); }

  /// With the guard held. Room for one more: `add` does not throw for want of it then.
  void make_room() {
    if (round_trips_.size() == round_trips_.capacity())
      round_trips_.reserve(2 * round_trips_.size() + 1);
  }
  void add(std::shared_ptr<round_trip> one) {
    round_trips_.push_back(std::move(one));
    count();
    engine_.started();
  }

  // Called by the engine.
  inline std::size_t test(progress::ready_queue&) override;
  inline void leave() override;
  inline void abandon() override;

 private:
  inline void shutdown() override {}  // the engine ends the operations
  inline void list(progress::pending_lines& lines) override;
  void count() noexcept { pending_.store(round_trips_.size(), std::memory_order_relaxed); }

  request_source& requests_;
  std::vector<std::shared_ptr<round_trip>> round_trips_;  // in the order in which they have begun
};

/// What a staged operation waits for: its carrier, first on the way in and then on the way out.
/// Looks are all there is when a context ends or a future is dropped, and none of its stages
/// blocks.
///
/// 1. `start_in`: when the data have come, the operation is posted, or leaves with what has failed,
///    but not before the copies are over.
/// 2. `start_out`: when they are back, the operation ends.
///
/// *Threads*: all but `let_go` and `give_up` with the guard of the source of MPI held.
class round_trip : public std::enable_shared_from_this<round_trip> {
 public:
  round_trip(poster& post, argument_check* check, std::unique_ptr<carrier> load)
      : state_(post.state()),
        source_(asio::use_service<round_trip_source>(state_.engine.context())),
        op_(&post.operation()),
        done_(post.completion()),
        check_(check),
        load_(std::move(load)) {}

  [[nodiscard]] carrier& load() const noexcept { return *load_; }
  void start_in() {
    begin();
    load_->fetch();
  }
  /// `most`: bytes of a staged buffer that have come. False if nothing is to be brought back.
  [[nodiscard]] bool start_out(std::size_t most) {
    comes_back_ = true;
    if (!wanted_) return false;
    source_.make_room();  // while nothing is under way
    if (!load_->store(most)) return false;
    begin();
    return true;
  }

  /// What has gone wrong on the way that is under way.
  [[nodiscard]] std::error_code failure() const noexcept { return load_->failure(); }
  /// The awaiter has left: memory that is borrowed is not touched any more, and no result is
  /// delivered.
  void let_go() noexcept { wanted_ = false; }
  /// It ends before MPI has anything of it, if it still can.
  void give_up() {
    given_up_ = true;
    state_.engine.started();
  }
  /// The operation goes, without the guard. As a rule the round trip is over by then.
  void forget() noexcept {
    if (!under_way_.load(std::memory_order_acquire)) return;
    const request_source::guard hold(state_.source);
    op_ = nullptr;
  }

  // Called by the source.
  /// A step. True when there are no more of them: `go_on` is next.
  [[nodiscard]] bool step() noexcept {
    return op_ == nullptr || load_->is_over(given_up_ && !comes_back_);
  }
  inline void go_on();
  /// The engine ends: a receive is posted, so that what is sent with it arrives, and cancelled.
  void leave() noexcept { leaves_ = op_ != nullptr && op_->cancellable && !comes_back_; }
  /// Nobody looks any more. The operation is leaked, as those that MPI still has are.
  void abandon() noexcept {
    under_way_.store(false, std::memory_order_release);
    if (op_ != nullptr) op_->settle();
  }
  /// What it is, for reports.
  [[nodiscard]] inline std::string line() const;

  progress::pending_age age;

 private:
  void begin() {
    under_way_.store(true, std::memory_order_release);
    age = {};
    source_.add(shared_from_this());
  }

  communicator_state& state_;
  round_trip_source& source_;
  request_operation* op_;  // null: it has gone
  backend_completion done_;
  argument_check* check_;  // of a collective that is not posted yet
  std::unique_ptr<carrier> load_;
  bool comes_back_ = false;  // the result
  bool leaves_ = false;
  std::atomic<bool> under_way_{false};
  std::atomic<bool> wanted_{true};
  std::atomic<bool> given_up_{false};
};

inline void round_trip::go_on() {
  under_way_.store(false, std::memory_order_release);
  if (op_ == nullptr) return;
  request_operation& op = *op_;
  std::error_code why = failure();
  if (!why && !comes_back_) {
    if (given_up_) why = asio::error::operation_aborted;
    if (const errc bad = state_.source.usable(); bad != errc{}) why = bad;
  }
  const bool leaves = std::exchange(leaves_, false) && !why;
  communicator_state& state = state_;
  if (check_ != nullptr) {
    std::exchange(check_, nullptr)->open(why);
  } else {
    done_.in_look(why);
  }
  if (leaves) state.source.cancel(op);
}

inline std::string round_trip::line() const {
  std::string text = "an operation that has gone";
  if (op_ != nullptr) {
    text = "rank " + std::to_string(op_->rank) + ": " + op_->verb + " #" +
           std::to_string(op_->sequence) + ", " + std::to_string(op_->bytes) + " bytes";
  }
  return text + (comes_back_ ? ", going back to the device" : ", coming from the device");
}

inline std::size_t round_trip_source::test(progress::ready_queue&) {
  if (pending() == 0) return 0;
  const request_source::guard hold(requests_);
  std::size_t found = 0;
  for (std::size_t i = 0; i < round_trips_.size();) {
    const std::shared_ptr<round_trip> one = round_trips_[i];
    if (!one->step()) {
      ++i;
      continue;
    }
    round_trips_.erase(round_trips_.begin() + static_cast<std::ptrdiff_t>(i));
    one->go_on();  // may begin the way back of this one or of another
    ++found;
  }
  // What was posted is counted by now: an engine must not find nothing pending in between.
  count();
  if (found != 0) engine_.started();
  return found;
}

inline void round_trip_source::leave() {
  const request_source::guard hold(requests_);
  for (const auto& one : round_trips_) one->leave();
}

inline void round_trip_source::abandon() {
  const request_source::guard hold(requests_);
  for (const auto& one : round_trips_) one->abandon();
  round_trips_.clear();
  count();
}

inline void round_trip_source::list(progress::pending_lines& lines) {
  const request_source::guard hold(requests_);
  for (const auto& one : round_trips_) {
    if (lines.names(one->age)) lines.add(one->line(), one->age);
  }
}

}  // namespace cohort::comm
