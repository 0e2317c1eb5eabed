// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A process set in the log of its coordinator, on one of its ranks.

#include <cohort/coordinator/negotiation.hpp>

namespace cohort::coordination {

/// A set of a coordinator with a backend for devices: all its sets share one log, so that all ranks
/// launch in one order. [protocol D1] It belongs to the negotiation, which does everything; this
/// translates ranks. Its handles keep the negotiation alive. Everything runs with the request
/// source locked, but what overrides.
template <class Any>
class negotiation<Any>::subset final : public instance {
 public:
  /// `host` is for operations on the host with `second` for later parts, `over` for the backend for
  /// devices alone.
  subset(negotiation& owner, communicator host, mpi::comm second, communicator over,
         const coordinator_options& options, const creation& record)
      : instance(host, options),
        id(record.id),
        owner_(owner),
        host_(std::move(host)),
        second_(std::move(second)),
        over_(std::move(over)) {
    members_ = record.members;
    place = {record.number,
             rank_,
             size_,
             host_.state()->data.native(),
             {host_.state()->exchange.native(), second_.native()}};
    place.slots.resize(options_.slots);
  }

  std::uint64_t id;  ///< log count of its creation
  set_place place;
  coordinator_statistics counted;
  task* maker = nullptr;    ///< waits until the backend is open
  task* joining = nullptr;  ///< null also if nobody awaits the join
  bool opening = false;     ///< the backend may use its communicator
  bool left = false;
  std::vector<task*> closing;  ///< wait for the end
  clock::time_point leave_until = clock::time_point::max();

  void submit(task& one, std::string_view name, const protocol::signature& sig,
              const std::source_location& site, std::chrono::nanoseconds deadline) override {
    one.set = place.set;
    if (sig.root < 0) return owner_.submit(one, name, sig, site, deadline);
    protocol::signature common = sig;  // the log knows the ranks of the coordinator
    common.root = outside(sig.root);
    if (sig.kind == op_kind::message) {
      common.detail = static_cast<std::uint64_t>(outside(static_cast<int>(sig.detail)));
    }
    owner_.submit(one, name, common, site, deadline);
  }
  void join(task& one) override {
    one.set = place.set;
    owner_.join(one);
  }
  void stop_joining(task& one) override { owner_.stop_joining(one); }
  bool withdraw(task& one, protocol::withdrawal_reason reason) override {
    return owner_.withdraw(one, reason);
  }
  void leave(protocol::departure how) override { owner_.leave_set(place.set, how); }
  void wait_closed(task& one) override;
  void stop_waiting(task& one) override;
  /// In the background: the coordinator waits for it at its own end.
  void leave_in_place() override {
    if (!owner_.abandoned_) leave(protocol::departure::drained);
  }
  void add_set(task& one) override {
    one.set = place.set;
    one.fail(std::make_exception_ptr(error(errc::not_supported, "a process set of a process set")));
    const comm::request_source::guard hold(owner_.source_);
    owner_.complete(one);
  }
  std::shared_ptr<group_state> add_group(task& one, std::string_view name, protocol::signature sig,
                                         const std::source_location& site) override {
    one.set = place.set;
    return owner_.add_group(one, name, std::move(sig), site);
  }
  void start_group(task& one, group_state& which) override {
    one.set = place.set;
    owner_.start_group(one, which);
  }
  void remove_group(task& one, group_state& which, const std::source_location& site) override {
    one.set = place.set;
    owner_.remove_group(one, which, site);
  }
  [[nodiscard]] std::vector<pending_operation> pending() override {
    return owner_.pending_in(place.set);
  }
  [[nodiscard]] coordinator_statistics statistics() override {
    const comm::request_source::guard hold(owner_.source_);
    return counted;
  }
  void ask() override { owner_.ask(); }
  void step() override { owner_.step(); }
  std::error_code start_timeline(const std::string& path) override {
    return owner_.start_timeline(path);
  }
  void stop_timeline() override { owner_.stop_timeline(); }

  // The context keeps the negotiation alone.
  [[nodiscard]] bool closed() const noexcept override { return !over_; }
  void abandon() override {}
  void drive() override {}
  void settle_tasks() override {}
  void destroy_tasks() override;

  [[nodiscard]] const communicator& over() const noexcept { return over_; }
  /// All operations of it are complete: frees what it has, and tells who waits for that.
  void release();
  /// The communicators stay with MPI.
  void leave_to_mpi();

 private:
  /// The coordinator's number of a rank; what is none is refused with the number that was given.
  [[nodiscard]] int outside(int rank) const {
    return rank >= 0 && rank < size_ ? members_[static_cast<std::size_t>(rank)] : rank;
  }

  negotiation& owner_;
  communicator host_;
  mpi::comm second_;
  communicator over_;
};

}  // namespace cohort::coordination
