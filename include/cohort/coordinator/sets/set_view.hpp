// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A set of ranks as its handles on one rank see it: the one implementation of `instance`.
/// Ranks enter the room `sets`; instances, and groups of theirs, leave.

#include <cohort/coordinator/data/data_plane.hpp>
#include <cohort/coordinator/instance.hpp>

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::coordination {

template <class Any>
class negotiation;

/// A coordinator or a process set, on one of its ranks. What is agreed upon in one order is a
/// negotiation, and this is one set of its ranks: it has the ranks and their numbers, where its
/// operations run, who waits for what, and what it has done. The negotiation does the rest.
///
/// A coordinator is set 0 of its negotiation: all ranks. So is a process set on hosts, of one of
/// its own: sets that overlap do not wait for each other. With a backend for devices, process sets
/// are sets 1, 2, ... of the coordinator's negotiation, so that all ranks launch in one order.
/// [protocol D1]
///
/// Its handles keep the negotiation alive to which it belongs. Everything runs with the request
/// source locked, but for the functions that override those of `instance`: these take the lock.
template <class Any>
class set_view final : public instance {
 public:
  /// `record` says how it was made; it lists no members if this is a coordinator.
  set_view(negotiation<Any>& log, const communicator& over, const coordinator_options& options,
           const creation& record)
      : instance(over, options), id(record.id), log_(log) {
    place.set = record.number;
    place.rank = rank_;
    place.size = size_;
    if (!record.members.empty()) members_ = record.members;
  }

  set_place place;
  std::uint64_t id;  ///< log count of its creation, where that was logged; also in the timeline
  coordinator_statistics counted;
  task* maker = nullptr;       ///< waits until the backend is open
  task* joining = nullptr;     ///< null also if nobody awaits the join
  bool opening = false;        ///< the backend may use its communicator
  bool left = false;           ///< this rank has left it
  bool leave_expired = false;  ///< and the others have not, in time
  bool closed = false;         ///< nothing of it is left
  std::vector<task*> closing;  ///< wait for that
  clock::time_point leave_until = clock::time_point::max();

  void submit(task& one, std::string_view name, const protocol::signature& sig,
              const std::source_location& site, std::chrono::nanoseconds deadline) override {
    one.view = this;
    if (is_whole() || sig.root < 0) return log_.tasks.submit(one, name, sig, site, deadline);
    protocol::signature common = sig;  // the log knows its own ranks
    common.root = outside(sig.root);
    if (sig.kind == op_kind::message) {
      common.detail = static_cast<std::uint64_t>(outside(static_cast<int>(sig.detail)));
    }
    log_.tasks.submit(one, name, common, site, deadline);
  }
  void join(task& one) override {
    one.view = this;
    log_.tasks.join(one);
  }
  void stop_joining(task& one) override {
    const comm::request_source::guard hold(log_.source);
    if (joining != &one) return;
    joining = nullptr;
    log_.tasks.stop_joining(one);
  }
  bool withdraw(task& one, protocol::withdrawal_reason reason) override {
    return log_.tasks.withdraw(one, reason);
  }
  void leave(protocol::departure how, std::string_view why = {}) override {
    const comm::request_source::guard hold(log_.source);
    if (std::exchange(left, true)) return;
    leave_until = clock::now() + options_.leave_deadline;
    log_.life.leave(place.set, how, why);
  }
  void wait_closed(task& one) override {
    const comm::request_source::guard hold(log_.source);
    one.view = this;
    one.submitted = log_.now();
    if (!closed && !leave_expired) {
      closing.push_back(&one);
      return log_.stay_awake();
    }
    if (!closed) one.fail(errc::stalled, not_left_in_time());
    engine_.complete(&one);
  }
  void stop_waiting(task& one) override {
    const comm::request_source::guard hold(log_.source);
    if (std::erase(closing, &one) == 0) return;
    one.fail(std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
    engine_.complete(&one);
  }
  /// Inside the loop the rank leaves in the background, and so it leaves a set in the log of a
  /// coordinator, which waits for it at its own end.
  void leave_in_place() override {
    if (log_.life.abandoned) return;
    leave(protocol::departure::drained);
    if (is_whole()) log_.life.end_in_place();
  }
  [[nodiscard]] std::string_view name_of(const task& one) const override {
    return log_.tasks.given_name(one);
  }
  void add_set(task& one) override {
    one.view = this;
    if (is_whole()) return log_.sets.add(one);
    one.fail(errc::not_supported, "a process set of a process set");
    const comm::request_source::guard hold(log_.source);
    log_.tasks.complete(one);
  }
  std::shared_ptr<group_state> add_group(task& one, std::string_view name, protocol::signature sig,
                                         const std::source_location& site) override {
    one.view = this;
    return log_.groups.add(one, name, std::move(sig), site);
  }
  void start_group(task& one, group_state& which) override {
    one.view = this;
    log_.groups.start(one, which);
  }
  void remove_group(task& one, group_state& which, const std::source_location& site) override {
    one.view = this;
    log_.groups.remove(one, which, site);
  }
  [[nodiscard]] std::vector<pending_operation> pending() override {
    const comm::request_source::guard hold(log_.source);
    return log_.reports.pending_in(*this);
  }
  [[nodiscard]] coordinator_statistics statistics() override {
    const comm::request_source::guard hold(log_.source);
    coordinator_statistics all = counted;
    const auto& messages = log_.neighbours.channel.statistics();
    all.messages_sent = messages.messages_sent;
    all.bytes_sent = messages.bytes_sent;
    all.messages_received = messages.messages_received;
    if (is_whole()) all.tuning = log_.tuned.statistics();
    return all;
  }
  [[nodiscard]] coordinator_options present_options() override {
    const comm::request_source::guard hold(log_.source);
    coordinator_options now = options_;
    for (const option_row& row : tuned_options()) row.set(now, row.get(log_.options));
    return now;
  }
  void request_report() override { log_.reports.request_report(); }
  void step() override { log_.recording.step(); }
  std::error_code start_timeline(const std::string& path) override {
    const comm::request_source::guard hold(log_.source);
    return log_.recording.start(path);
  }
  void stop_timeline() override {
    const comm::request_source::guard hold(log_.source);
    log_.recording.stop();
  }

  /// All ranks of the log, in its numbers.
  [[nodiscard]] bool is_whole() const noexcept { return place.set == 0; }
  /// The log's number of a rank. A number that is no rank stays as it is, to be refused by the
  /// number that was given.
  [[nodiscard]] int outside(int rank) const noexcept {
    return !is_whole() && rank >= 0 && rank < size_ ? members_[static_cast<std::size_t>(rank)]
                                                    : rank;
  }
  /// What has the log's numbers, in those of this set.
  [[nodiscard]] int inside(int rank) const noexcept {
    return is_whole() || rank < 0 ? rank : members_.position_of(rank);
  }
  [[nodiscard]] rank_set inside(const rank_set& of) const {
    if (is_whole()) return of;
    rank_set result;
    for (const int rank : of.list()) {
      if (members_.contains(rank)) result.insert(members_.position_of(rank));
    }
    return result;
  }
  /// A fault is of the whole log, and keeps its numbers.
  [[nodiscard]] protocol::verdict inside(const protocol::verdict& why) const {
    protocol::verdict result = why;
    if (is_whole() || why.kind == protocol::failure_kind::data) return result;
    result.rank = inside(why.rank);
    for (rank_set* each :
         {&result.ready, &result.missing, &result.silent, &result.unknown, &result.ranks}) {
      *each = inside(*each);
    }
    for (protocol::side& each : result.sides) {
      each.ranks = inside(each.ranks);
      each.sig.root = inside(each.sig.root);
      if (each.sig.kind == op_kind::message) {
        each.sig.detail = static_cast<std::uint64_t>(inside(static_cast<int>(each.sig.detail)));
      }
    }
    return result;
  }

  /// `host` is for operations on the host with `second` for later parts, `devices` for the backend
  /// for devices alone.
  void take(communicator host, mpi::comm second, communicator devices) {
    place.shared = host.state()->data.native();
    place.slots = {host.state()->exchange.native(), second.native()};
    place.slots.resize(options_.slots);
    host_ = std::move(host);
    second_ = std::move(second);
    over_ = std::move(devices);
  }
  void take(communicator devices) { over_ = std::move(devices); }
  [[nodiscard]] const communicator& over() const noexcept { return over_; }
  /// The others have not left in time: tells who waits for that.
  void expire(const std::string& besides = {}) {
    leave_expired = true;
    for (task* each : std::exchange(closing, {})) {
      each->fail(errc::stalled, not_left_in_time() + besides);
      engine_.complete(each);
    }
  }
  [[nodiscard]] std::string not_left_in_time() const {
    return "rank " + std::to_string(rank_) +
           (is_whole() ? std::string(": coordinator") : " of process set " + members_.str()) +
           ": the other ranks have not left in time";
  }
  /// All operations of it are complete: frees what it has, and tells who waits for that.
  void release() {
    closed = true;
    host_ = communicator();
    second_ = mpi::comm();
    over_ = communicator();
    for (task* each : std::exchange(closing, {})) engine_.complete(each);
  }
  /// The communicators stay with MPI.
  void leave_to_mpi() {
    for (const communicator& each : {host_, over_}) {
      if (each) each.state()->keep();
    }
    second_.keep();
  }
  /// Without any handler, as the context ends.
  void destroy_tasks() {
    for (task* each : std::exchange(closing, {})) each->destroy();
    if (maker != nullptr) std::exchange(maker, nullptr)->destroy();
  }

 private:
  negotiation<Any>& log_;
  communicator host_;
  mpi::comm second_;
  communicator over_;
};

}  // namespace cohort::coordination
