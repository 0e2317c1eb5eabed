// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A set of ranks as its handles on one rank see it: the one implementation of `instance`.

#include <cohort/coordinator/data_plane.hpp>
#include <cohort/coordinator/instance.hpp>

#include <algorithm>
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
/// Its handles keep the negotiation alive, to which it belongs. Everything runs with the request
/// source locked, but what overrides.
template <class Any>
class set_view final : public instance {
 public:
  /// `record` says how it was made; it lists no members if this is a coordinator.
  set_view(negotiation<Any>& log, const communicator& over, const coordinator_options& options,
           const creation& record);

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
              const std::source_location& site, std::chrono::nanoseconds deadline) override;
  void join(task& one) override;
  void stop_joining(task& one) override;
  bool withdraw(task& one, protocol::withdrawal_reason reason) override;
  void leave(protocol::departure how) override;
  void wait_closed(task& one) override;
  void stop_waiting(task& one) override;
  void leave_in_place() override;
  void add_set(task& one) override;
  std::shared_ptr<group_state> add_group(task& one, std::string_view name, protocol::signature sig,
                                         const std::source_location& site) override;
  void start_group(task& one, group_state& which) override;
  void remove_group(task& one, group_state& which, const std::source_location& site) override;
  [[nodiscard]] std::vector<pending_operation> pending() override;
  [[nodiscard]] coordinator_statistics statistics() override;
  void ask() override;
  void step() override;
  std::error_code start_timeline(const std::string& path) override;
  void stop_timeline() override;

  /// All ranks of the log, in its numbers.
  [[nodiscard]] bool is_whole() const noexcept { return place.set == 0; }
  /// The log's number of a rank; what is none is refused with the number that was given.
  [[nodiscard]] int outside(int rank) const noexcept {
    return !is_whole() && rank >= 0 && rank < size_ ? members_[static_cast<std::size_t>(rank)]
                                                    : rank;
  }
  /// What has the log's numbers, in those of this set.
  [[nodiscard]] int inside(int rank) const noexcept {
    return is_whole() || rank < 0 ? rank : members_.position_of(rank);
  }
  [[nodiscard]] rank_set inside(const rank_set& of) const;
  /// A fault is of the whole log, and keeps its numbers.
  [[nodiscard]] protocol::verdict inside(const protocol::verdict& why) const;

  /// `host` is for operations on the host with `second` for later parts, `devices` for the backend
  /// for devices alone.
  void take(communicator host, mpi::comm second, communicator devices);
  void take(communicator devices) { over_ = std::move(devices); }
  [[nodiscard]] const communicator& over() const noexcept { return over_; }
  /// The others have not left in time: who waits for that is told.
  void expire(const std::string& besides = {});
  [[nodiscard]] std::string not_left_in_time() const;
  /// All operations of it are complete: frees what it has, and tells who waits for that.
  void release();
  /// The communicators stay with MPI.
  void leave_to_mpi();
  /// Without any handler, as the context ends.
  void destroy_tasks();

 private:
  negotiation<Any>& log_;
  communicator host_;
  mpi::comm second_;
  communicator over_;
};

}  // namespace cohort::coordination
