// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How a negotiation ends on this rank: leaving, waiting for the others, letting go.

#include <cohort/coordinator/log/submissions.hpp>
#include <cohort/coordinator/sets/set_view.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/kept_objects.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace cohort::coordination {

template <class Any>
class negotiation;

/// A negotiation is being opened, then open, then closed, once; it closes when all ranks have left
/// and nothing of it is under way here, or when it has broken down.
template <class Any>
class lifetime {
 public:
  explicit lifetime(negotiation<Any>& log) noexcept : log_(log) {}

  enum class stage : std::uint8_t { opening, open, closed };
  [[nodiscard]] bool has_opened() const noexcept { return stage_ != stage::opening; }
  [[nodiscard]] bool closed() const noexcept { return stage_ == stage::closed; }
  void opened() noexcept { stage_ = stage::open; }

  bool abandoned = false;    ///< the context goes away
  bool keeps = false;        ///< MPI still works on what this instance has
  std::size_t openings = 0;  ///< of this instance and of sets, inside MPI

  void leave(std::uint32_t set, protocol::departure how);
  void leaving_has_expired();
  void check_released();
  void end_in_place();
  void abandon();
  void drive();

 private:
  void close();
  void leave_to_mpi();

  negotiation<Any>& log_;
  stage stage_ = stage::opening;
};

/// Who leaves set 0 leaves all that is agreed upon.
template <class Any>
void lifetime<Any>::leave(std::uint32_t set, protocol::departure how) {
  if (log_.faults.broken || (set != 0 && log_.sets.whole().left)) return;
  try {
    if (set == 0) {
      log_.node.leave(how);
    } else {
      log_.node.leave_set(set, how);
    }
  } catch (...) {
    return log_.faults.break_down(std::current_exception());
  }
  if (!has_opened()) return;
  log_.stay_awake();
  log_.touch();
}

/// The others may still come; this rank goes on serving them while its loop runs. [protocol L6]
template <class Any>
void lifetime<Any>::leaving_has_expired() {
  process::missing.fetch_add(1);
  const std::string besides = "; its communicators are kept";
  log::write(log::level::error, log_.sets.whole().not_left_in_time() + besides);
  log_.sets.whole().expire(besides);
  log_.stay_awake();
}

template <class Any>
void lifetime<Any>::check_released() {
  if (!log_.faults.broken && !(has_opened() && log_.node.released())) return;
  if (log_.sets.whole().opening) return;
  if (!log_.faults.broken && !log_.faults.of_all() && log_.sets.opens()) {
    if (!abandoned) return;
    // The other ranks wait for it, and it goes on in the looks; but not for ever.
    if (log_.device.may_open_at(clock::now())) return log_.source.at_next_look(log_);
    log_.device.fail();  // what it works on stays
    keeps = true;
  }
  if (log_.faults.of_all() && !log_.faults.broken) {
    if (log_.node.shape().is_root()) log_.faults.settle();
    if (!log_.faults.settled()) return;
  }
  if (log_.plane.under_way() != 0 || log_.plane.waiting() != 0) return;
  if (log_.groups.under_way()) return;
  if (log_.neighbours.channel.sending()) return;
  if (log_.neighbours.settles_some() && !log_.faults.broken) return;
  log_.neighbours.channel.close();
  if (openings == 0 && log_.neighbours.channel.operations() == 0 && !closed()) close();
}

template <class Any>
void lifetime<Any>::close() {
  stage_ = stage::closed;
  if (log_.sets.whole().leave_expired && !log_.faults.broken)
    process::missing.fetch_sub(1);                       // they have come after all
  if (log_.sets.whole().id == 0) log_.recording.stop();  // it is the coordinator's
  log_.source.forget(log_);
  if (!log_.faults.broken)
    log_.sets.release_ended();  // first, as on ranks that have looked since the log said so
  log_.device.close();
  if (keeps) {
    leave_to_mpi();
  } else {
    log_.groups.clear();
  }
  log_.control = communicator();
  log_.slots = communicator();
  log_.sets.release_all();
}

// MPI may free a communicator under what still goes on there, and freeing is collective: after a
// fault no rank does.
template <class Any>
void lifetime<Any>::leave_to_mpi() {
  progress::left_to_mpi().add(log_.shared_from_this());
  for (const communicator& each : {log_.control, log_.slots}) {
    if (each) each.state()->keep();
  }
  log_.sets.for_each([](set_view<Any>& each) { each.leave_to_mpi(); });
  log_.groups.leave_to_mpi();
  log_.parent = communicator();
}

/// For destructors, outside the loop.
template <class Any>
void lifetime<Any>::end_in_place() {
  // While another thread runs the loop, nothing of ours may be read.
  if (log_.engine.get_executor().running_in_this_thread() || !log_.engine.context().stopped() ||
      closed() || !has_opened()) {
    return;
  }
  log_.engine.drive_until(
      [this] { return closed(); },
      std::min<std::chrono::nanoseconds>(log_.engine.drain_bound(),
                                         log_.sets.whole().leave_until - clock::now()));
}

template <class Any>
void lifetime<Any>::abandon() {
  log_.sets.whole().leave(protocol::departure::abandoned);
  abandoned = true;
  // Before the first instance of the context is driven: they are waited for together, and no longer
  // than for one. What has waited already takes in what is there.
  const auto at = clock::now();
  clock::time_point& until = log_.sets.whole().leave_until;
  until = std::min(std::max(until, at + settling_time), at + log_.engine.drain_bound());
}

template <class Any>
void lifetime<Any>::drive() {
  if (log_.engine.drive_until([this] { return closed(); },
                              log_.sets.whole().leave_until - clock::now()))
    return;
  const comm::request_source::guard hold(log_.source);
  if (log_.faults.broken) return;
  if (!log_.sets.whole().leave_expired) leaving_has_expired();
  if (!has_opened()) return;  // the engine may see it through
  // The engine ends the receives next, which is no lost connection.
  log_.faults.break_down(
      std::make_exception_ptr(error(errc::stalled, log_.sets.whole().not_left_in_time())), true);
  log_.neighbours.channel.close();
}

}  // namespace cohort::coordination
