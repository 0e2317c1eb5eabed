// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Communicators that fail, what ends with them, and aborts: bodies of `nccl/source.hpp`.

#include <cohort/core/log.hpp>
#include <cohort/nccl/source.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// Of an operation that has not been issued. What it has queued ahead on other streams goes on
/// there, with the memory that it uses.
COHORT_INLINE void issue_source::give_up(queue& one, work& op, std::error_code why) {
  op.fail(why);
  --op.comm->outstanding;
  if (op.steps == nullptr) return;
  flight half;
  half.uses = std::move(op.uses);
  if (std::optional<device::event> ahead = op.steps->give_up(half.uses)) {
    half.comm = op.comm;
    half.mark = std::move(*ahead);
    ++op.comm->outstanding;
    one.flights.push_back(std::move(half));
  }
}

/// Takes the operations of one communicator, or of all, out of the queue and off the device's
/// list. What they use on the device stays held.
COHORT_INLINE void issue_source::collect(queue& one, const communicator_state* only,
                                         std::error_code why, std::vector<work*>& ended) {
  const auto concerned = [&](const communicator_state& comm) {
    return only == nullptr || &comm == only;
  };
  for (flight& each : one.flights) {
    if (each.op == nullptr || !concerned(*each.comm)) continue;
    each.op->fail(why);
    if (each.op->steps != nullptr) {
      each.ahead = each.op->steps->give_up(each.uses);
      if (each.mark.valid()) detail::let_free_behind(each.uses, each.mark);
    }
    ended.push_back(std::exchange(each.op, nullptr));
  }
  if (one.launching != nullptr && concerned(*one.launching->comm)) {
    work& op = *std::exchange(one.launching, nullptr);
    op.fail(why);
    op.made_.clear();  // they go with the communicator
    flight& half = one.flights.emplace_back();
    half.comm = op.comm;
    half.uses = std::move(op.uses);
    if (op.steps != nullptr) half.ahead = op.steps->give_up(half.uses);
    ended.push_back(&op);
  }
  for (entry& each : one.waiting) {
    if (each.op == nullptr || !concerned(*each.op->comm)) continue;
    give_up(one, *each.op, why);
    ended.push_back(std::exchange(each.op, nullptr));
  }
  std::erase_if(one.waiting, [](const entry& each) { return each.op == nullptr && !each.place; });
}

/// The report of a failure: who was where. Before anything of it ends.
COHORT_INLINE std::string issue_source::pending_lines() {
  std::string lines;
  for_each_pending([&](const work& op, const char* stands) {
    lines.append("\n").append(line_about(op, stands));
  });
  return lines;
}
COHORT_INLINE std::string issue_source::last_lines(const communicator_state& comm) {
  const std::string last = comm.history();
  return (last.empty() ? last : "\n  started last: " + last) +
         "\n  what these were to write, and what is queued behind them, is undefined";
}

/// The ladder. 1. No more calls on the devices concerned. 2. Their operations are failed, before an
/// abort lets their events come. 3. The report. 4. Peers are told. 5. One helper thread aborts.
/// 6. When it has, or its bound has passed, the awaiters end: look_at_aborts().
COHORT_INLINE void issue_source::fall(
    communicator_state& comm, std::error_code why, const std::string& text, bool only_this,
    bool tell_peers, const std::vector<std::shared_ptr<communicator_state>>& together) {
  if (!is_up(comm)) return;
  // NCCL may see a sticky error before an event does, also one of another device that the
  // communicator has here. On a lost device nothing is aborted.
  for (const auto& one : comms_) {
    if (one.get() != &comm && (!one->is_sister(comm) || !is_up(*one))) continue;
    queue& its = queue_of(one->device);
    ask_whether_gone(its);
    if (is_gone(its)) return device_gone(its);  // which ends the sisters, too
  }
  auto job = std::make_unique<abort_job>();
  std::string report = "rank " + std::to_string(comm.rank) + ": nccl communicator on device " +
                       std::to_string(comm.device) + ": " + text + ": " + why.message();
  if (comm.native != nullptr) {
    const char* const last = ncclGetLastError(comm.native);
    if (last != nullptr && *last != '\0') report.append("; NCCL: ").append(last);
  }
  report.append(pending_lines()).append(last_lines(comm));

  for (const auto& one : comms_) {
    const bool is_it = one.get() == &comm;
    const bool is_sister = one->is_sister(comm);
    const bool is_meant = std::find(together.begin(), together.end(), one) != together.end();
    if (!is_up(*one) || (only_this && !is_it && !is_sister && !is_meant)) continue;
    if (one->stands == phase::leaving || one->stands == phase::finalising) --leaving_;
    one->why = why;
    one->set_failed();
    one->stands = phase::failed;
    one->leaves.end();
    job->comms.push_back(one);
    if (one->native != nullptr && (!one->borrowed || one->options.abort_borrowed)) {
      job->call->natives.push_back(one->native);
      job->call->device = one->device;
    }
    one->end_graphs(false);  // an abort would wait for them
    one->native = nullptr;
    one->remember({why, is_it ? report : "ended with another communicator: " + text});
    // Who has told this rank has told all of that communicator, but nobody of the others.
    const bool tells = is_it || is_meant ? tell_peers : !only_this && !is_sister;
    if (tells) tell(one, why, text, only_this);
    silence(one);
  }
  for (queue& one : queues_) {
    const bool concerned = std::any_of(job->comms.begin(), job->comms.end(), [&](const auto& each) {
      return each->device == one.device;
    });
    if (!concerned) continue;
    one.stopped = true;
    for (const auto& each : job->comms) {
      if (each->device == one.device) collect(one, each.get(), why, job->ended);
    }
  }
  job->until = clock::now() + comm.options.abort_bound;
  job->captures_until = clock::now() + capture_grace;
  if (job->call->natives.empty()) {
    job->call->done.store(true);
  } else {
    job->aborts = true;
    job->watched.begin(tools::category::communicator, tools::literal("abort"));
    job->start([its = job->call] {
      static_cast<void>(cudaSetDevice(its->device));
      static_cast<void>(ncclGroupStart());
      for (const ncclComm_t one : its->natives) static_cast<void>(ncclCommAbort(one));
      static_cast<void>(ncclGroupEnd());
      its->done.store(true);
    });
  }
  aborts_.push_back(std::move(job));
  recount();
}

COHORT_INLINE void issue_source::bring_down(communicator_state& comm, std::error_code why,
                                            const std::string& text, bool only_this,
                                            bool tell_peers) {
  {
    const std::lock_guard hold(mutex_);
    fall(comm, why, text, only_this, tell_peers);
  }
  engine_.started();
}

COHORT_INLINE void issue_source::bring_down(
    const std::vector<std::shared_ptr<communicator_state>>& all, std::error_code why,
    const std::string& text) {
  {
    const std::lock_guard hold(mutex_);
    const auto first =
        std::find_if(all.begin(), all.end(), [](const auto& one) { return is_up(*one); });
    if (first == all.end()) return;
    fall(**first, why, text, true, true, all);
  }
  engine_.started();
}

COHORT_INLINE std::size_t issue_source::look_at_aborts(progress::ready_queue& ready) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < aborts_.size();) {
    abort_job& job = *aborts_[i];
    const bool done = job.call->done.load();
    if (!done && clock::now() < job.until) {
      if (job.aborts && clock::now() >= job.captures_until) {
        for (const auto& comm : job.comms) comm->abandon_captures();
      }
      ++i;
      continue;
    }
    for (const auto& comm : job.comms) {
      comm->stands = done ? phase::gone : phase::leaked;
      if (done) comm->no_longer_launches();
      let_next_come(*comm);
      std::erase(comms_, comm);
    }
    std::vector<work*> ended = std::move(job.ended);
    if (!done) {
      log::write(log::level::error,
                 std::string("NCCL has not ") + (job.aborts ? "aborted" : "destroyed") +
                     " in time; its communicators are leaked, and nothing is freed any more on "
                     "their devices");
      for (const auto& comm : job.comms) {
        queue& one = queue_of(comm->device);
        device::state_of(one.device).stop_frees();
        if (!job.aborts || one.lost) continue;
        one.lost = errc::stalled;  // no call there is safe any more
        up_to_here(one, one.lost, phase::leaked, "hangs in an abort", ended);
      }
    }
    job.let_go();
    for (work* const op : ended) found += finish(*op, ready);
    aborts_.erase(aborts_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!aborts_.empty()) continue;
    for (queue& one : queues_) {
      if (!one.stopped) continue;
      one.stopped = false;
      if (one.launching != nullptr) continue;  // of another communicator; see launched()
      try {
        mark_what_aborts_left(one);
      } catch (const std::system_error&) {
        // The device has gone: device_gone() sees to it.
      }
    }
  }
  return found;
}

/// Ends everything of a device without a call of NCCL.
COHORT_INLINE void issue_source::up_to_here(queue& one, std::error_code why, phase then,
                                            const std::string& text, std::vector<work*>& ended) {
  const std::string pending = pending_lines();
  collect(one, nullptr, why, ended);
  for (flight& each : one.flights) --each.comm->outstanding;
  one.flights.clear();
  one.stopped = false;
  const auto all = comms_;
  std::vector<std::shared_ptr<communicator_state>> gone;
  for (const auto& comm : all) {
    const phase stands = comm->stands.load();
    if (comm->device != one.device || stands == phase::failed) continue;
    gone.push_back(comm);
    if (stands == phase::leaving || stands == phase::finalising) --leaving_;
    comm->why = why;
    comm->stands = then;
    if (then == phase::gone) comm->no_longer_launches();
    comm->leaves.end();
    comm->set_failed();
    comm->native = nullptr;
    let_next_come(*comm);
    comm->remember({why, "rank " + std::to_string(comm->rank) + ": device " +
                             std::to_string(one.device) + " " + text + ": " + why.message() +
                             pending + last_lines(*comm)});
    tell(comm, why, "its device " + text, false);
    silence(comm);
    std::erase(comms_, comm);
  }
  // The same communicators on other devices of this process.
  for (const auto& comm : all) {
    const auto is_its = [&](const auto& each) { return each->is_sister(*comm); };
    if (comm->device == one.device || std::none_of(gone.begin(), gone.end(), is_its)) continue;
    fall(*comm, make_error(ncclRemoteError), "device " + std::to_string(one.device) + " " + text,
         false, false);
  }
}

/// A device that was lost or reset: nothing is called and nothing freed there any more.
COHORT_INLINE void issue_source::device_gone(queue& one) {
  const device::device_state& state = device::state_of(one.device);
  const cudaError_t lost = state.lost();
  const auto why = device::make_error(lost == cudaSuccess ? cudaErrorContextIsDestroyed : lost);
  std::vector<work*> ended;
  up_to_here(one, why, phase::gone, "has gone", ended);
  one.domain.reset();
  one.scratch = {};
  one.lost = lost != cudaSuccess ? why : std::error_code();
  for (work* const op : ended) {
    if (work* const over = concluded(*op)) engine_.complete(over);
  }
}

/// The stream of the device was good once, so if CUDA refuses it now, somebody has reset the
/// device.
COHORT_INLINE void issue_source::ask_whether_gone(queue& one) {
  if (!one.domain) return;
  const cudaError_t code = cudaStreamQuery(one.domain->get());
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  if (code == cudaErrorNotReady) return;
  if (code == cudaErrorInvalidResourceHandle) {
    device::state_of(one.device).context_gone(one.generation);
  }
  device::detail::note(code, one.device, one.generation);
}

COHORT_INLINE bool issue_source::deadline_passed(work& given) {
  {
    const std::lock_guard hold(mutex_);
    if (!given.pending_) return false;
    work* which = &given;
    if (given.joined) {
      auto& parts = given.joined->parts;
      which =
          &*std::find_if(parts.begin(), parts.end(), [](const work& one) { return one.pending_; });
    }
    work& op = *which;
    communicator_state& comm = *op.comm;
    const bool abort = comm.options.on_deadline == on_deadline::abort;
    const std::error_code why = errc::deadline_exceeded;
    const std::string text = line_about(op, "deadline");
    if (!abort || (comm.borrowed && !comm.options.abort_borrowed)) {
      comm.remember({why, text + "; NCCL cannot give it up; waiting on"});
      ask(comm, op, text, why, false);
      return true;
    }
    op.overdue_ = true;
    // Who holds it up is found out first.
    if (!ask(comm, op, text, why, true)) fall(comm, why, text, false, true);
  }
  engine_.started();
  return true;
}

}  // namespace cohort::nccl
