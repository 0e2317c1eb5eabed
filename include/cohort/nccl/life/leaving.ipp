// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Communicators that leave: bodies of `nccl/life/ladder.hpp`.

#include <cohort/nccl/source.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cohort::nccl {

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
  const auto tell = [&](const char* what) {
    comm->remember({errc::stalled, "rank " + std::to_string(comm->rank) +
                                       ": an nccl communicator has not ended in time" + what +
                                       "; started last: " + comm->history()});
  };
  if (one.works_for(*comm)) {
    // What is behind it on the stream of the device, and in its queue, will not come either.
    tell("");
    one.lose(errc::stalled);
    source_.ladder().up_to_here(one, errc::stalled, phase::leaked,
                                "hangs in a communicator that left", ended);
  } else {
    one.collect(comm.get(), errc::stalled, ended);
    comm->end_as(phase::leaked, errc::stalled);
    tell(" and is leaked");
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
