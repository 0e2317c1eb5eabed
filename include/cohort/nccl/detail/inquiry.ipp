// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How ranks find out who holds an operation up: bodies of `nccl/source.hpp`.

#include <cohort/nccl/source.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace cohort::nccl {

// Ranks are asked over the fault channel, because NCCL does not tell who is missing.
//
// 1. A deadline passes over an operation, or it takes too long. This rank asks all others.
// 2. Every rank that laps answers with its position in the order of operations.
// 3. When all have answered, or `answer_bound` has passed, this rank says who was silent and who
//    has not started the operation. If the deadline is to abort, the ladder goes on.

/// With the lock held. False if nobody can be asked. One question at a time for each communicator:
/// a later deadline joins the question that is under way.
COHORT_INLINE bool issue_source::ask(communicator_state& comm, const work& op,
                                     const std::string& about, std::error_code why, bool aborts) {
  if (comm.size == 1 || !comm.mpi || is_in_place()) return false;
  if (comm.asked && (comm.asked->aborts || !aborts)) return true;
  const bool is_new = !comm.asked;
  inquiry& made = is_new ? comm.asked.emplace() : *comm.asked;
  made.sequence = op.sequence;
  made.collective = op.collective;
  made.about = about.substr(std::min(about.find_first_not_of(' '), about.size()));
  made.why = why;
  made.aborts = aborts;
  if (is_new) send_question(comm);
  return true;
}

/// With the lock held. `comm.asked` says what about.
COHORT_INLINE void issue_source::send_question(communicator_state& comm) {
  inquiry& made = *comm.asked;
  made.number = ++questions_;
  made.until = clock::now() + comm.options.answer_bound;
  made.answers.resize(static_cast<std::size_t>(comm.size));
  for (const auto& one : comms_) {
    if (!one->is_sister(comm)) continue;
    made.answers[static_cast<std::size_t>(one->rank)] = position_of(*one);
  }
  send_to(comm.shared_from_this(), position_question{comm.token, made.number}, every_peer);
}

COHORT_INLINE bool issue_source::inquire(communicator_state& comm,
                                         std::function<void(const std::string&)> tell) {
  if (comm.size == 1 || !comm.mpi || is_in_place() || comm.stands != phase::ready) {
    tell({});
    return true;
  }
  if (comm.asked) return false;
  comm.asked.emplace().tell = std::move(tell);
  send_question(comm);
  recount();
  engine_.started();
  return true;
}

/// With the lock held.
COHORT_INLINE rank_position issue_source::position_of(const communicator_state& comm) {
  rank_position at;
  at.collectives = comm.collectives;
  const communicator_state::record& last = comm.last_started();
  if (last.verb != nullptr) {
    at.stands = standing::ended;
    at.sequence = last.sequence;
    at.bytes = last.bytes;
    at.verb = last.verb;
  }
  const work* oldest = nullptr;
  standing stands = standing::none;
  const auto look = [&](const work* op, standing where) {
    if (oldest != nullptr || op == nullptr || op->comm.get() != &comm) return;
    oldest = op;
    stands = where;
  };
  const queue& one = queue_of(comm.device);
  for (const flight& each : one.flights) look(each.op, standing::on_device);
  look(one.launching, standing::launching);
  for (const entry& each : one.waiting) look(each.op, standing::queued);
  if (oldest == nullptr) return at;
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() -  //
                                                                         oldest->age.since);
  at.stands = stands;
  at.sequence = oldest->sequence;
  at.bytes = oldest->bytes;
  at.milliseconds = static_cast<std::uint64_t>(age.count());
  at.verb = oldest->verb;
  return at;
}

/// With the lock held: for each device of this process.
COHORT_INLINE void issue_source::answer(const communicator_state& comm, std::uint64_t number,
                                        int asker) {
  if (engine_.stopped()) return;
  for (const auto& one : comms_) {
    if (!one->is_sister(comm)) continue;
    position_answer said{one->token, number, static_cast<std::uint32_t>(one->rank),
                         position_of(*one)};
    send_to(one, std::move(said), asker);
  }
}

/// With the lock held.
COHORT_INLINE void issue_source::note_answer(const communicator_state& comm,
                                             position_answer&& said) {
  for (const auto& one : comms_) {
    if (!one->is_sister(comm) || !one->asked || one->asked->number != said.number) continue;
    if (said.rank >= one->asked->answers.size()) return;
    one->asked->answers[said.rank] = std::move(said.position);
    return;
  }
}

/// With the lock held, in a lap.
COHORT_INLINE void issue_source::look_at_inquiries() {
  const auto all = comms_;
  for (const auto& comm : all) {
    if (!comm->asked) continue;
    const auto now = clock::now();
    if (!comm->asked->is_answered() && now < comm->asked->until) continue;
    const inquiry asked = std::move(*comm->asked);
    comm->asked.reset();
    const auto bound =
        std::chrono::duration_cast<std::chrono::milliseconds>(comm->options.answer_bound);
    if (asked.tell) {
      asked.tell("; asked the ranks: " + findings(asked, comm->rank, bound));
      continue;
    }
    bool is_pending = false;
    const work* overdue = nullptr;  // another one, whose deadline came while this was being asked
    for_each_pending([&](const work& op, const char*) {
      if (op.comm != comm) return;
      is_pending = is_pending || op.sequence == asked.sequence;
      if (overdue == nullptr && op.overdue_) overdue = &op;
    });
    if (!is_pending) {  // it has ended after all
      if (overdue == nullptr) continue;
      const std::string text = line_about(*overdue, "deadline");
      const std::error_code why = errc::deadline_exceeded;
      if (!ask(*comm, *overdue, text, why, true)) fall(*comm, why, text, false, true);
      continue;
    }
    const std::string text = asked.about + "; asked the ranks: " +  //
                             findings(asked, comm->rank, bound);
    if (asked.aborts) {
      fall(*comm, asked.why, text, false, true);
    } else if (asked.why) {
      comm->remember({asked.why, text});
    } else {
      log::write(log::level::warning, text);
    }
  }
}

}  // namespace cohort::nccl
