// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `nccl/life/state.hpp`: communicators that fail, what ends with them, and aborts.

#include <cohort/core/log.hpp>
#include <cohort/nccl/source.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace cohort::nccl {

COHORT_INLINE void communicator_state::remember(failure what) {
  log::write(log::level::error, what.text);
  const std::lock_guard hold(failure_mutex_);
  last_failure_ = std::move(what);
}

COHORT_INLINE std::string communicator_state::history() const {
  std::string text;
  for (std::size_t back = history_.size(); back-- > 0;) {
    if (sequence < back) continue;
    const record& one = history_[(sequence - back) % history_.size()];
    if (one.verb == nullptr) continue;
    text.append(text.empty() ? "" : ", ").append(one.verb).append(" #");
    text.append(std::to_string(one.sequence)).append(" of ").append(std::to_string(one.bytes));
    text.append(" bytes");
  }
  return text;
}

COHORT_INLINE void communicator_state::end_graphs(bool logs) noexcept {
  for (const std::weak_ptr<captured>& each : graphs) {
    const auto one = each.lock();
    if (!one || !one->end() || !logs) continue;
    log::write(
        log::level::warning,
        "rank " + std::to_string(rank) + ": " + one->name +
            " was still held when its coordinator closed; what it has on the device is gone");
  }
}

COHORT_INLINE void communicator_state::abandon_captures() noexcept {
  for (const std::weak_ptr<captured>& each : graphs) {
    if (const auto one = each.lock()) one->abandon();
  }
}

// ---- threads that call what blocks -----------------------------------------------------------

COHORT_INLINE void abort_ladder::removal::start() {
  watched.begin(tools::category::communicator, tools::literal(aborts ? "abort" : "destroy"));
  try {
    thread = std::thread([its = call, aborts = aborts] {
      static_cast<void>(cudaSetDevice(its->device));
      if (aborts) static_cast<void>(ncclGroupStart());
      for (const ncclComm_t one : its->natives) {
        static_cast<void>(aborts ? ncclCommAbort(one) : ncclCommDestroy(one));
      }
      if (aborts) static_cast<void>(ncclGroupEnd());
      its->done.store(true);
    });
  } catch (const std::system_error&) {
    until = clock::time_point::min();
  }
}

COHORT_INLINE void abort_ladder::removal::let_go() {
  if (!thread.joinable()) return;
  if (call->done.load()) {
    thread.join();
  } else {
    thread.detach();
  }
}

COHORT_INLINE abort_ladder::~abort_ladder() {
  for (const auto& each : removals_) each->let_go();
}

COHORT_INLINE void abort_ladder::give_up(std::vector<work*>& ended) {
  for (const auto& each : removals_) {
    ended.insert(ended.end(), each->ended.begin(), each->ended.end());
    each->let_go();
  }
  removals_.clear();
}

COHORT_INLINE void abort_ladder::destroy(const std::shared_ptr<communicator_state>& comm) {
  auto one = std::make_unique<removal>();
  one->comms.push_back(comm);
  one->call->natives.push_back(comm->native);
  one->call->device = comm->device;
  one->until = comm->leave_until;
  one->start();
  removals_.push_back(std::move(one));
}

// ---- the ladder ------------------------------------------------------------------------------

COHORT_INLINE std::string abort_ladder::last_lines(const communicator_state& comm) {
  const std::string last = comm.history();
  return (last.empty() ? last : "\n  started last: " + last) +
         "\n  what these were to write, and what is queued behind them, is undefined";
}

COHORT_INLINE void abort_ladder::fall(communicator_state& comm, std::error_code why,
                                      const std::string& text, bool only_this, bool notify_peers,
                                      const communicators& together) {
  if (!comm.is_up()) return;
  // NCCL may see a sticky error before an event does, also one of another device that the
  // communicator has here. On a lost device nothing is aborted.
  for (const auto& one : source_.comms()) {
    if (one.get() != &comm && (!one->is_sister(comm) || !one->is_up())) continue;
    device_queue& its = source_.queue_of(one->device);
    its.ask_whether_gone();
    if (its.is_gone()) return device_gone(its);  // which ends the sisters, too
  }
  auto made = std::make_unique<removal>();
  std::string report = "rank " + std::to_string(comm.rank) + ": nccl communicator on device " +
                       std::to_string(comm.device) + ": " + text + ": " + why.message();
  if (comm.native != nullptr) {
    const char* const last = ncclGetLastError(comm.native);
    if (last != nullptr && *last != '\0') report.append("; NCCL: ").append(last);
  }
  report.append(source_.questions().pending_lines()).append(last_lines(comm));

  for (const auto& one : source_.comms()) {
    const bool is_it = one.get() == &comm;
    const bool is_sister = one->is_sister(comm);
    const bool is_meant = std::find(together.begin(), together.end(), one) != together.end();
    if (!one->is_up() || (only_this && !is_it && !is_sister && !is_meant)) continue;
    made->comms.push_back(one);
    if (one->native != nullptr && (!one->borrowed || one->options.abort_borrowed)) {
      made->call->natives.push_back(one->native);
      made->call->device = one->device;
    }
    one->end_graphs(false);  // an abort would wait for them
    one->end_as(phase::failed, why);
    one->set_failed();
    one->remember({why, is_it ? report : "ended with another communicator: " + text});
    // Who has told this rank has told all of that communicator, but nobody of the others.
    const bool notifies = is_it || is_meant ? notify_peers : !only_this && !is_sister;
    if (notifies) source_.messages().notify(one, why, text, only_this);
    source_.messages().silence(one);
  }
  for (const auto& each : made->comms) source_.queue_of(each->device).stop();
  for (device_queue& one : source_.queues()) {
    for (const auto& each : made->comms) {
      if (each->device == one.device()) one.collect(each.get(), why, made->ended);
    }
  }
  made->until = clock::now() + comm.options.abort_bound;
  made->captures_until = clock::now() + capture_grace;
  if (made->call->natives.empty()) {
    made->call->done.store(true);
  } else {
    made->aborts = true;
    made->start();
  }
  removals_.push_back(std::move(made));
  source_.recount();
}

COHORT_INLINE void abort_ladder::bring_down(communicator_state& comm, std::error_code why,
                                            const std::string& text, bool notify_peers) {
  source_.exclusively([&] { fall(comm, why, text, true, notify_peers); });
  source_.wake();
}

COHORT_INLINE void abort_ladder::bring_down(const communicators& all, std::error_code why,
                                            const std::string& text) {
  source_.exclusively([&] {
    const auto first =
        std::find_if(all.begin(), all.end(), [](const auto& one) { return one->is_up(); });
    if (first != all.end()) fall(**first, why, text, true, true, all);
  });
  source_.wake();
}

COHORT_INLINE void abort_ladder::conclude(removal& one, bool done, std::vector<work*>& ended) {
  for (const auto& comm : one.comms) {
    comm->stands = done ? phase::gone : phase::leaked;
    if (done) comm->no_longer_launches();
    comm->let_next_come();
    std::erase(source_.comms(), comm);
  }
  ended = std::move(one.ended);
  if (!done) {
    log::write(log::level::error, std::string("NCCL has not ") +
                                      (one.aborts ? "aborted" : "destroyed") +
                                      " in time; its communicators are leaked, and nothing is "
                                      "freed any more on their devices");
    for (const auto& comm : one.comms) {
      device_queue& its = source_.queue_of(comm->device);
      device::state_of(comm->device).stop_frees();
      if (!one.aborts || its.is_lost()) continue;
      its.lose(errc::stalled);  // no call there is safe any more
      up_to_here(its, errc::stalled, phase::leaked, "hangs in an abort", ended);
    }
  }
  one.let_go();
}

COHORT_INLINE std::size_t abort_ladder::look(progress::ready_queue& ready) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < removals_.size();) {
    removal& one = *removals_[i];
    const auto now = clock::now();
    const bool done = one.call->done.load();
    if (!done && now < one.until) {
      if (one.aborts && now >= one.captures_until) {
        for (const auto& comm : one.comms) comm->abandon_captures();
      }
      ++i;
      continue;
    }
    std::vector<work*> ended;
    conclude(one, done, ended);
    for (work* const op : ended) found += source_.finish(*op, ready);
    removals_.erase(removals_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!removals_.empty()) continue;
    for (device_queue& each : source_.queues()) each.go_on();
  }
  return found;
}

// ---- devices ---------------------------------------------------------------------------------

COHORT_INLINE void abort_ladder::up_to_here(device_queue& one, std::error_code why, phase then,
                                            const std::string& text, std::vector<work*>& ended) {
  const std::string pending = source_.questions().pending_lines();
  one.drop_all(why, ended);
  const communicators all = source_.comms();
  communicators gone;
  for (const auto& comm : all) {
    if (comm->device != one.device() || comm->stands == phase::failed) continue;
    gone.push_back(comm);
    comm->end_as(then, why);
    if (then == phase::gone) comm->no_longer_launches();
    comm->set_failed();
    comm->let_next_come();
    comm->remember({why, "rank " + std::to_string(comm->rank) + ": device " +
                             std::to_string(one.device()) + " " + text + ": " + why.message() +
                             pending + last_lines(*comm)});
    source_.messages().notify(comm, why, "its device " + text, false);
    source_.messages().silence(comm);
    std::erase(source_.comms(), comm);
  }
  // The same communicators on other devices of this process.
  for (const auto& comm : all) {
    const auto is_its = [&](const auto& each) { return each->is_sister(*comm); };
    if (comm->device == one.device() || std::none_of(gone.begin(), gone.end(), is_its)) continue;
    fall(*comm, make_error(ncclRemoteError), "device " + std::to_string(one.device()) + " " + text,
         false, false);
  }
}

COHORT_INLINE void abort_ladder::device_gone(device_queue& one) {
  const cudaError_t lost = device::state_of(one.device()).lost();
  const auto why = device::make_error(lost == cudaSuccess ? cudaErrorContextIsDestroyed : lost);
  std::vector<work*> ended;
  up_to_here(one, why, phase::gone, "has gone", ended);
  one.forget_context(lost != cudaSuccess ? why : std::error_code());
  for (work* const op : ended) {
    if (work* const over = issue_source::concluded(*op)) source_.engine().complete(over);
  }
}

// ---- communicators that leave ----------------------------------------------------------------

COHORT_INLINE void departures::begin(communicator_state& comm) {
  if (comm.stands != phase::ready) return;
  comm.stands = phase::leaving;
  comm.leaves.begin(tools::category::communicator, tools::literal("finalize"));
  comm.leave_until = clock::now() + comm.options.leave_bound;
  comm.place = comm.own_place.front().place;
  source_.queue_of(comm.device).append(comm.own_place);
  source_.recount();
}

COHORT_INLINE void departures::leave(communicator_state& comm) {
  source_.exclusively([&] { begin(comm); });
  source_.wake_if_possible();  // it is a destructor that calls
}

COHORT_INLINE std::size_t departures::pending() const noexcept {
  const auto& all = source_.comms();
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const auto& one) { return one->is_leaving(); }));
}

COHORT_INLINE std::size_t departures::look(progress::ready_queue& ready) {
  if (pending() == 0) return 0;
  std::size_t found = 0;
  const auto all = source_.comms();
  for (const auto& comm : all) {
    if (!comm->is_leaving()) continue;
    if (clock::now() >= comm->leave_until) {
      found += leak(comm, ready);
    } else if (comm->stands == phase::finalising || finalise(*comm)) {
      go_on(comm);
    }
  }
  return found;
}

/// It has not ended in time.
COHORT_INLINE std::size_t departures::leak(const std::shared_ptr<communicator_state>& comm,
                                           progress::ready_queue& ready) {
  device_queue& one = source_.queue_of(comm->device);
  device::state_of(comm->device).stop_frees();
  std::vector<work*> ended;
  const auto note = [&](const char* what) {
    comm->remember({errc::stalled, "rank " + std::to_string(comm->rank) +
                                       ": an nccl communicator has not ended in time" + what +
                                       "; started last: " + comm->history()});
  };
  if (one.works_for(*comm)) {
    // What is behind it on the stream of the device, and in its queue, will not come either.
    note("");
    one.lose(errc::stalled);
    source_.ladder().up_to_here(one, errc::stalled, phase::leaked,
                                "hangs in a communicator that left", ended);
  } else {
    one.collect(comm.get(), errc::stalled, ended);
    comm->end_as(phase::leaked, errc::stalled);
    note(" and is leaked");
    comm->let_next_come();
    comm->keep_mpi();
    source_.messages().silence(comm);
    std::erase(source_.comms(), comm);
  }
  std::size_t found = 0;
  for (work* const op : ended) found += source_.finish(*op, ready);
  return found;
}

/// Whether that has begun.
COHORT_INLINE bool departures::finalise(communicator_state& comm) {
  device_queue& one = source_.queue_of(comm.device);
  if (!comm.place->come || comm.outstanding != 0 || !one.is_free()) return false;
  one.ask_whether_gone();
  if (one.is_gone()) {
    source_.ladder().device_gone(one);
    return false;
  }
  comm.end_graphs(true);
  if (!comm.borrowed) {
    const ncclResult_t code = ncclCommFinalize(comm.native);
    if (detail::failed(code)) {
      source_.ladder().fall(comm, make_error(code), "ncclCommFinalize", true, false);
      return false;
    }
  }
  comm.stands = phase::finalising;
  comm.hold_until = clock::now() + longest_hold;
  return true;
}

COHORT_INLINE void departures::go_on(const std::shared_ptr<communicator_state>& comm) {
  if (clock::now() >= comm->hold_until) comm->let_next_come();
  if (comm->borrowed) {
    comm->no_longer_launches();
    comm->let_next_come();
    comm->end_as(phase::gone, errc::closed);
    std::erase(source_.comms(), comm);
  } else {
    const ncclResult_t state = detail::state_of(comm->native);
    if (state == ncclInProgress) return;
    if (state != ncclSuccess) {
      return source_.ladder().fall(*comm, make_error(state), "ncclCommFinalize", true, false);
    }
    source_.ladder().destroy(comm);
    comm->end_as(phase::failed, errc::closed);  // until the thread has ended
  }
  source_.messages().part(comm);
}

}  // namespace cohort::nccl
