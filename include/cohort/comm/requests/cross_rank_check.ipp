// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `checks::cross_rank`: the ranks compare a collective's arguments before it is posted.

#include <cohort/comm/operation.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace cohort::comm {

/// One comparison, and the operation that waits for it. With lower levels of checks there is
/// nothing to compare: then the queue holds an operation whose data are still on their way from a
/// device, or of which another stage is to be posted, and collectives that were started after it.
///
/// 1. Every rank posts one small all_reduce on the exchange communicator, in order of initiation:
///    the minimum of each value and of its negative, so that minimum and maximum come back.
/// 2. Comparisons may complete in another order on another rank, so operations are posted in order
///    of initiation: one whose comparison is done waits until it is the first of the queue.
/// 3. An operation that does not pass is never posted, on any rank.
class cross_rank_check final : public argument_check {
 public:
  cross_rank_check(communicator_state& comm, request_operation& op, post_function start) noexcept
      : comm_(comm), op_(op), post_(start) {}

  /// Posts the comparison, if there is one. With the guard held.
  int post(const std::array<std::int64_t, 4>& agreed, poster& to) override {
    if (to.level() != checks::cross_rank) {
      compared_ = true;
      enqueue();
      op_.waits_for_turn_ = true;
      go_on(this);
      return MPI_SUCCESS;
    }
    std::uint64_t hash = 1469598103934665603U;
    for (const char c : std::string_view(op_.verb)) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    }
    mine_[0] = static_cast<std::int64_t>(hash >> 2U);
    if (op_.failed()) {
      // What is held knows that its data are on a device.
      mine_[0] = !held_ && op_.error() == errc::not_supported ? in_device_memory : wrong;
    }
    for (std::size_t i = 0; i < agreed.size(); ++i) mine_[i + 1] = agreed[i];
    for (std::size_t i = 0; i < fields; ++i) {
      const bool any = mine_[i] == any_value;
      least_[i] = any ? no_limit : mine_[i];
      least_[fields + i] = any ? no_limit : -mine_[i];
    }
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = MPI_Iallreduce(MPI_IN_PLACE, least_.data(), 2 * fields, MPI_INT64_T, MPI_MIN,
                                  to.exchange(), &request);
    if (rc == MPI_SUCCESS) {
      enqueue();
      op_.advances_failed_ = true;
    }
    return to.add(rc, request);
  }

  /// The comparison is complete. Returns true if the operation goes on. With the guard held.
  bool completed() override {
    compared_ = true;
    op_.advances_failed_ = false;
    differs_ = !op_.failed() && differs();  // after an error of MPI there is nothing to compare
    if (differs_) op_.fail(errc::cross_rank_mismatch);
    if (op_.failed()) leave_queue();
    go_on(this);
    if (!posted_ && !op_.failed()) op_.waits_for_turn_ = true;
    return !op_.failed();
  }
  void hold() noexcept override { held_ = true; }
  void open(std::error_code why) override {
    held_ = false;
    if (posted_ && comm_.unchecked != this) return;  // it was given up
    op_.fail(why);
    go_on(nullptr);
  }
  [[nodiscard]] bool done() const noexcept override { return compared_; }

  /// The first of the queue is given up. What waits behind it will never be posted, so nothing
  /// touches its buffers; what is started after it must not wait too. With the guard held.
  static void abandon(communicator_state& comm) noexcept {
    for (const cross_rank_check* one = comm.unchecked; one != nullptr; one = one->next_) {
      one->op_.settle();
    }
    comm.unchecked = nullptr;
    comm.queues = comm.options.checks == checks::cross_rank;
  }
  /// Ends with `why` what waits for its turn; the source ends the others.
  static void fail_waiting(communicator_state& comm, std::error_code why,
                           progress::ready_queue& ready) noexcept {
    for (const cross_rank_check* one = comm.unchecked; one != nullptr; one = one->next_) {
      if (!one->op_.waits_for_turn_) continue;
      one->op_.waits_for_turn_ = false;
      one->op_.fail(why);
      one->op_.settle();
      ready.push(&one->op_);
    }
    comm.unchecked = nullptr;
    comm.queues = comm.options.checks == checks::cross_rank;
  }

  /// Names the values that differ.
  void explain(failure_text& text) const override {
    static constexpr std::array<const char*, fields> names = {"verb", "count", "element.bytes",
                                                              "operation", "root"};
    for (std::size_t i = 0; differs_ && i < fields; ++i) {
      const std::int64_t low = least_[i];
      const std::int64_t high = -least_[fields + i];
      if (low >= high) continue;
      if (i == 0 && low < 0) {
        text.note(low == wrong ? "a rank cannot take part, as its own error says"
                               : "a rank gives device memory as memory of the host");
        return;
      }
      if (i == 0 || i == 3) {
        text.note(std::string(names[i]) + " differs between ranks");
      } else {
        const std::string here = mine_[i] == any_value ? "any" : std::to_string(mine_[i]);
        text.note(std::string(names[i]) + " differs between ranks: here " + here + ", lowest " +
                  std::to_string(low) + ", highest " + std::to_string(high));
      }
    }
  }

 private:
  static constexpr std::size_t fields = 5;
  // In place of the verb: a rank will not post it.
  static constexpr std::int64_t in_device_memory = -1;
  static constexpr std::int64_t wrong = -2;
  static constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

  /// Where no rank has a value, the minimum stays above the maximum.
  [[nodiscard]] bool differs() const noexcept {
    for (std::size_t i = 0; i < fields; ++i) {
      if (least_[i] < -least_[fields + i]) return true;
    }
    return false;
  }

  void enqueue() noexcept {
    (comm_.unchecked == nullptr ? comm_.unchecked : comm_.last_unchecked->next_) = this;
    comm_.last_unchecked = this;
    comm_.queues = true;
  }
  /// It ends without having been posted, whatever it still waits for.
  void leave_queue() noexcept {
    posted_ = true;
    cross_rank_check* before = nullptr;
    for (cross_rank_check* one = comm_.unchecked; one != nullptr; before = one, one = one->next_) {
      if (one != this) continue;
      (before == nullptr ? comm_.unchecked : before->next_) = next_;
      if (comm_.last_unchecked == this) comm_.last_unchecked = before;
      if (comm_.unchecked == nullptr) comm_.queues = comm_.options.checks == checks::cross_rank;
      return;
    }
  }
  /// Posts those at the front that have all they need. `in_hand` is ended by the caller.
  void go_on(const cross_rank_check* in_hand) {
    communicator_state& comm = comm_;  // this object may be gone
    while (comm.unchecked != nullptr && comm.unchecked->compared_ && !comm.unchecked->held_) {
      cross_rank_check* const first = comm.unchecked;
      comm.unchecked = first->next_;
      if (comm.unchecked == nullptr) comm.queues = comm.options.checks == checks::cross_rank;
      if (first->posted_ || !first->release(first == in_hand)) continue;
      first->next_ = comm.unchecked;
      comm.unchecked = first;
      if (first->next_ == nullptr) comm.last_unchecked = first;
      comm.queues = true;
    }
  }
  /// It is this operation's turn. True if it keeps it, for another stage. One that waited is not in
  /// anybody's hands: if it ends here, it must be completed here.
  bool release(bool in_hand) {
    op_.waits_for_turn_ = false;
    if (!op_.failed()) post_(&op_);
    posted_ = true;
    held_ = held_ && request_source::pending(op_);
    if (held_) return true;
    if (!in_hand && !request_source::pending(op_) && !op_.waits_for_turn_) {
      comm_.engine.complete(&op_);
    }
    return false;
  }

  communicator_state& comm_;
  request_operation& op_;
  post_function post_;
  cross_rank_check* next_ = nullptr;  // in order of initiation
  std::array<std::int64_t, fields> mine_{};
  std::array<std::int64_t, 2 * fields> least_{};  // MPI works on it: the object must not move
  bool compared_ = false;
  bool held_ = false;  // its data are not there, or another stage is to be posted
  bool differs_ = false;
  bool posted_ = false;
};

COHORT_INLINE std::unique_ptr<argument_check> request_source::make_check(
    communicator_state& comm, request_operation& op, argument_check::post_function post) {
  return std::make_unique<cross_rank_check>(comm, op, post);
}

}  // namespace cohort::comm
