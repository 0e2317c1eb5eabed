// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of coordinator/sets/set_view.hpp.

#include <cohort/coordinator/negotiation.hpp>
#include <cohort/coordinator/sets/set_view.hpp>

namespace cohort::coordination {

template <class Any>
set_view<Any>::set_view(negotiation<Any>& log, const communicator& over,
                        const coordinator_options& options, const creation& record)
    : instance(over, options), id(record.id), log_(log) {
  place.set = record.number;
  place.rank = rank_;
  place.size = size_;
  if (!record.members.empty()) members_ = record.members;
}

// ---- what its handles ask for -------------------------------------------------------------------

template <class Any>
void set_view<Any>::submit(task& one, std::string_view name, const protocol::signature& sig,
                           const std::source_location& site, std::chrono::nanoseconds deadline) {
  one.view = this;
  if (is_whole() || sig.root < 0) return log_.submit(one, name, sig, site, deadline);
  protocol::signature common = sig;  // the log knows its own ranks
  common.root = outside(sig.root);
  if (sig.kind == op_kind::message) {
    common.detail = static_cast<std::uint64_t>(outside(static_cast<int>(sig.detail)));
  }
  log_.submit(one, name, common, site, deadline);
}

template <class Any>
void set_view<Any>::join(task& one) {
  one.view = this;
  log_.join(one);
}

template <class Any>
void set_view<Any>::stop_joining(task& one) {
  log_.stop_joining(one);
}

template <class Any>
bool set_view<Any>::withdraw(task& one, protocol::withdrawal_reason reason) {
  return log_.withdraw(one, reason);
}

template <class Any>
void set_view<Any>::leave(protocol::departure how) {
  const comm::request_source::guard hold(log_.source_);
  if (std::exchange(left, true)) return;
  leave_until = clock::now() + options_.leave_deadline;
  log_.leave(place.set, how);
}

template <class Any>
void set_view<Any>::wait_closed(task& one) {
  const comm::request_source::guard hold(log_.source_);
  one.view = this;
  one.submitted = log_.now();
  if (!closed && !leave_expired) {
    closing.push_back(&one);
    return log_.stay_awake();
  }
  if (!closed) one.fail(std::make_exception_ptr(error(errc::stalled, not_left_in_time())));
  engine_.complete(&one);
}

template <class Any>
void set_view<Any>::stop_waiting(task& one) {
  const comm::request_source::guard hold(log_.source_);
  if (std::erase(closing, &one) == 0) return;
  one.fail(std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
  engine_.complete(&one);
}

/// Inside the loop the rank leaves in the background, and so it leaves a set in the log of a
/// coordinator, which waits for it at its own end.
template <class Any>
void set_view<Any>::leave_in_place() {
  if (log_.abandoned_) return;
  leave(protocol::departure::drained);
  if (is_whole()) log_.end_in_place();
}

template <class Any>
void set_view<Any>::add_set(task& one) {
  one.view = this;
  if (is_whole()) return log_.add_set(one);
  one.fail(std::make_exception_ptr(error(errc::not_supported, "a process set of a process set")));
  const comm::request_source::guard hold(log_.source_);
  log_.complete(one);
}

template <class Any>
std::shared_ptr<group_state> set_view<Any>::add_group(task& one, std::string_view name,
                                                      protocol::signature sig,
                                                      const std::source_location& site) {
  one.view = this;
  return log_.add_group(one, name, std::move(sig), site);
}

template <class Any>
void set_view<Any>::start_group(task& one, group_state& which) {
  one.view = this;
  log_.start_group(one, which);
}

template <class Any>
void set_view<Any>::remove_group(task& one, group_state& which, const std::source_location& site) {
  one.view = this;
  log_.remove_group(one, which, site);
}

template <class Any>
std::vector<pending_operation> set_view<Any>::pending() {
  const comm::request_source::guard hold(log_.source_);
  return log_.pending_in(*this);
}

template <class Any>
coordinator_statistics set_view<Any>::statistics() {
  const comm::request_source::guard hold(log_.source_);
  coordinator_statistics all = counted;
  const auto& messages = log_.channel_.statistics();
  all.messages_sent = messages.messages_sent;
  all.bytes_sent = messages.bytes_sent;
  all.messages_received = messages.messages_received;
  return all;
}

template <class Any>
void set_view<Any>::ask() {
  log_.ask();
}
template <class Any>
void set_view<Any>::step() {
  log_.step();
}
template <class Any>
std::error_code set_view<Any>::start_timeline(const std::string& path) {
  return log_.start_timeline(path);
}
template <class Any>
void set_view<Any>::stop_timeline() {
  log_.stop_timeline();
}

// ---- numbers of ranks ---------------------------------------------------------------------------

template <class Any>
rank_set set_view<Any>::inside(const rank_set& of) const {
  if (is_whole()) return of;
  rank_set result;
  for (const int rank : of.list()) {
    if (members_.contains(rank)) result.insert(members_.position_of(rank));
  }
  return result;
}

template <class Any>
protocol::verdict set_view<Any>::inside(const protocol::verdict& why) const {
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

// ---- the end ------------------------------------------------------------------------------------

template <class Any>
void set_view<Any>::take(communicator host, mpi::comm second, communicator devices) {
  place.shared = host.state()->data.native();
  place.slots = {host.state()->exchange.native(), second.native()};
  place.slots.resize(options_.slots);
  host_ = std::move(host);
  second_ = std::move(second);
  over_ = std::move(devices);
}

template <class Any>
std::string set_view<Any>::not_left_in_time() const {
  return "rank " + std::to_string(rank_) +
         (is_whole() ? std::string(": coordinator") : " of process set " + members_.str()) +
         ": the other ranks have not left in time";
}

template <class Any>
void set_view<Any>::expire(const std::string& besides) {
  leave_expired = true;
  for (task* each : std::exchange(closing, {})) {
    each->fail(std::make_exception_ptr(error(errc::stalled, not_left_in_time() + besides)));
    engine_.complete(each);
  }
}

template <class Any>
void set_view<Any>::release() {
  closed = true;
  host_ = communicator();
  second_ = mpi::comm();
  over_ = communicator();
  for (task* each : std::exchange(closing, {})) engine_.complete(each);
}

template <class Any>
void set_view<Any>::leave_to_mpi() {
  for (const communicator& each : {host_, over_}) {
    if (each) each.state()->keep();
  }
  second_.keep();
}

template <class Any>
void set_view<Any>::destroy_tasks() {
  for (task* each : std::exchange(closing, {})) each->destroy();
  if (maker != nullptr) std::exchange(maker, nullptr)->destroy();
}

}  // namespace cohort::coordination
