// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Communicators that leave, and the end of the engine: bodies of `nccl/source.hpp`.

#include <cohort/core/log.hpp>
#include <cohort/nccl/source.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace cohort::nccl {

COHORT_INLINE void issue_source::let_next_come(communicator_state& comm) noexcept {
  if (comm.place) comm.place->over = true;
}

COHORT_INLINE void issue_source::take_leave(communicator_state& comm) {
  if (comm.stands != phase::ready) return;
  comm.stands = phase::leaving;
  comm.leaves.begin(tools::category::communicator, tools::literal("finalize"));
  comm.leave_until = clock::now() + comm.options.leave_bound;
  comm.place = comm.own_place.front().place;
  auto& waiting = queue_of(comm.device).waiting;
  waiting.splice(waiting.end(), comm.own_place);
  ++leaving_;
  recount();
}

COHORT_INLINE void issue_source::leave(communicator_state& comm) {
  {
    const std::lock_guard hold(mutex_);
    take_leave(comm);
  }
  try {
    engine_.started();
  } catch (const std::bad_alloc&) {
    // It is a destructor that calls. The next look at the device finds it.
  }
}

/// Those that leave: when their place in the queue has come and nothing of theirs is on the device,
/// they are finalised; when that is over, destroyed, on a thread, because it may wait for the
/// device. The queue is held meanwhile, but not for ever: where the ranks leave in another order
/// than they start operations, finalising would wait for operations that wait for it. It launches
/// nothing, so going on does no harm.
COHORT_INLINE std::size_t issue_source::look_at_leaving(progress::ready_queue& ready) {
  if (leaving_ == 0) return 0;
  std::size_t found = 0;
  const auto all = comms_;
  for (const auto& comm : all) {
    const phase stands = comm->stands.load();
    if (stands != phase::leaving && stands != phase::finalising) continue;
    if (clock::now() >= comm->leave_until) {
      queue& one = queue_of(comm->device);
      device::state_of(one.device).stop_frees();
      const auto is_its = [&](const flight& each) { return each.comm == comm; };
      std::vector<work*> ended;
      if ((one.launching != nullptr && one.launching->comm == comm) ||
          std::any_of(one.flights.begin(), one.flights.end(), is_its)) {
        // What is behind it on the stream of the device, and in its queue, will not come either.
        comm->remember({errc::stalled, "rank " + std::to_string(comm->rank) +
                                           ": an nccl communicator has not ended in time; started "
                                           "last: " +
                                           comm->history()});
        one.lost = errc::stalled;
        up_to_here(one, one.lost, phase::leaked, "hangs in a communicator that left", ended);
        for (work* const op : ended) found += finish(*op, ready);
        continue;
      }
      collect(one, comm.get(), errc::stalled, ended);
      for (work* const op : ended) found += finish(*op, ready);
      --leaving_;
      comm->why = errc::stalled;
      comm->stands = phase::leaked;
      comm->leaves.end();
      comm->native = nullptr;
      comm->remember({comm->why, "rank " + std::to_string(comm->rank) +
                                     ": an nccl communicator has not ended in time and is leaked; "
                                     "started last: " +
                                     comm->history()});
      let_next_come(*comm);
      comm->keep_mpi();
      silence(comm);
      std::erase(comms_, comm);
      continue;
    }
    if (stands == phase::leaving) {
      queue& one = queue_of(comm->device);
      if (!comm->place->come || comm->outstanding != 0) continue;
      if (one.launching != nullptr || one.stopped) continue;
      ask_whether_gone(one);
      if (is_gone(one)) {
        device_gone(one);
        continue;
      }
      comm->end_graphs(true);
      if (!comm->borrowed) {
        const ncclResult_t code = ncclCommFinalize(comm->native);
        if (detail::failed(code)) {
          fall(*comm, make_error(code), "ncclCommFinalize", true, false);
          continue;
        }
      }
      comm->stands = phase::finalising;
      comm->hold_until = clock::now() + longest_hold;
    }
    if (clock::now() >= comm->hold_until) let_next_come(*comm);
    if (!comm->borrowed) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(comm->native, &state);
      if (detail::failed(asked)) state = asked;
      if (state == ncclInProgress) continue;
      if (state != ncclSuccess) {
        fall(*comm, make_error(state), "ncclCommFinalize", true, false);
        continue;
      }
      auto job = std::make_unique<abort_job>();
      job->comms.push_back(comm);
      job->call->natives.push_back(comm->native);
      job->call->device = comm->device;
      job->until = comm->leave_until;
      job->watched.begin(tools::category::communicator, tools::literal("destroy"));
      job->start([its = job->call] {
        static_cast<void>(cudaSetDevice(its->device));
        static_cast<void>(ncclCommDestroy(its->natives.front()));
        its->done.store(true);
      });
      aborts_.push_back(std::move(job));
      comm->stands = phase::failed;  // until the thread has ended
    } else {
      comm->stands = phase::gone;
      comm->no_longer_launches();
      let_next_come(*comm);
      std::erase(comms_, comm);
    }
    --leaving_;
    comm->leaves.end();
    comm->native = nullptr;
    comm->why = errc::closed;
    part(comm);
  }
  return found;
}

/// With the lock held: goodbyes are not heard any more. The caller drops them without it.
COHORT_INLINE std::vector<parting> issue_source::let_partings_go() {
  for (const parting& each : partings_) each.comm->keep_mpi();
  return std::exchange(partings_, {});
}

/// The engine ends, or MPI does. What has not been issued is given up, the rest is waited for in
/// place, without handlers, and all communicators leave.
COHORT_INLINE void issue_source::leave() {
  std::vector<progress::operation*> ended;
  std::vector<parting> gone;
  {
    const std::lock_guard hold(mutex_);
    ending_ = engine_.stopped();
    for (queue& one : queues_) {
      for (const entry& each : one.waiting) {
        if (each.op == nullptr) continue;
        give_up(one, *each.op, asio::error::operation_aborted);
        if (work* const over = concluded(*each.op)) ended.push_back(over);
      }
      std::erase_if(one.waiting, [](const entry& each) { return each.op != nullptr; });
      for (const entry& each : one.waiting) {
        const bool leaves = std::any_of(comms_.begin(), comms_.end(), [&](const auto& comm) {
          return comm->place == each.place;
        });
        if (!leaves) each.place->over = true;  // who waits for it is given up
      }
    }
    std::erase_if(conditions_, [&](condition_base* each) {
      if (!each->bounded) each->error = asio::error::operation_aborted;
      if (each->in_lap != nullptr) return false;  // the next look goes on with it
      ended.push_back(each);
      return true;
    });
    const auto all = comms_;
    for (const auto& comm : all) take_leave(*comm);  // what is being made goes on
    in_place_ = true;
    gone = let_partings_go();
    recount();
  }
  for (progress::operation* const op : ended) engine_.complete(op);
}

/// Waiting has not helped. Communicators and the memory that they use are leaked, and the awaiters
/// end.
COHORT_INLINE void issue_source::end() {
  std::vector<work*> ended;
  std::vector<condition_base*> given_up;
  std::vector<parting> gone;
  {
    const std::lock_guard hold(mutex_);
    gone = let_partings_go();
    for (queue& one : queues_) {
      collect(one, nullptr, errc::engine_stopped, ended);
      one.waiting.clear();
      if (one.flights.empty()) continue;
      device::state_of(one.device).stop_frees();
      one.flights.clear();
    }
    for (auto& job : aborts_) {
      for (work* const op : job->ended) ended.push_back(op);
      job->let_go();
    }
    aborts_.clear();
    for (const auto& comm : comms_) {
      comm->keep_mpi();
      if (comm->native == nullptr && comm->stands != phase::failed) continue;
      device::state_of(comm->device).stop_frees();
      comm->stands = phase::leaked;
      comm->leaves.end();
      comm->native = nullptr;
      comm->remember({errc::stalled, "an nccl communicator has not ended with its loop; leaked"});
    }
    comms_.clear();
    leaving_ = 0;
    for (work* const op : std::exchange(ended_in_lap_, {})) ended.push_back(op);
    given_up = std::exchange(conditions_, {});
    for (condition_base* const each : given_up) each->error = errc::engine_stopped;
    recount();
  }
  for (condition_base* const each : given_up) engine_.complete(each);
  for (work* const op : ended) {
    if (work* const over = concluded(*op)) engine_.complete(over);
  }
}

}  // namespace cohort::nccl
