// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What ranks tell each other about faults: bodies of `nccl/faults/channel.hpp`.

#include <cohort/core/log.hpp>
#include <cohort/nccl/faults/channel.hpp>
#include <cohort/nccl/source.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>

namespace cohort::nccl {

COHORT_INLINE fault_channel::fault_channel(issue_source& source, const cohort::communicator& over)
    : source_(source),
      messages_(std::make_shared<comm::mailbox>(
          over, comm::channel_options{.fragment = fault_message_size + 1,
                                      .longest = fault_message_size})) {}

COHORT_INLINE void fault_channel::send(int to, const fault_bytes& message) {
  messages_->send_at_once(to, 0, message);
}

COHORT_INLINE void fault_channel::received(int from, unsigned, std::span<const std::byte> message) {
  std::shared_ptr<communicator_state> comm;
  for (std::size_t i = 0; i < handles_.size() && !comm; ++i) comm = handles_[i].lock();
  if (comm && source_.messages().receive(*comm, decode(message), from)) return;
  source_.messages().close(shared_from_this());  // nothing more can come
}

COHORT_INLINE fault_messages::fault_messages(issue_source& source)
    : source_(source), to_peers_(source.engine().get_executor()) {}

COHORT_INLINE void fault_messages::listen(const handle& which) {
  if (which->mpi.size() == 1) return;
  asio::post(to_peers_, [still = std::weak_ptr(which)] {
    if (const auto comm = still.lock()) comm->channel->listen();
  });
}

/// This handle, or another one of the same communicator.
COHORT_INLINE fault_messages::handle fault_messages::sister_up(
    const communicator_state& comm) const {
  for (const handle& one : source_.comms()) {
    if (one->is_sister(comm) && one->is_up()) return one;
  }
  return nullptr;
}

COHORT_INLINE fault_messages::handle fault_messages::receive(
    const communicator_state& comm, const std::optional<fault_message>& message, int from) {
  const auto token = [](const auto& one) { return one.token; };
  const bool is_ours = message && std::visit(token, *message) == comm.token;
  handle next;
  source_.exclusively([&] {
    bool fails = false;
    const auto* const goodbye = is_ours ? std::get_if<fault_goodbye>(&*message) : nullptr;
    if (is_ours) {
      fault_channel::traffic& its = comm.channel->with(from, comm.mpi.size());
      if (goodbye == nullptr) ++its.received;
      if (goodbye != nullptr) its.announced = goodbye->messages;
    }
    if (!is_ours || goodbye != nullptr) {
      // Nothing more.
    } else if (const auto* const notice = std::get_if<fault_notice>(&*message)) {
      const std::string text =
          "told by rank " + std::to_string(comm.rank_of_process(from)) + ": " + notice->text;
      const auto all = source_.comms();
      for (const handle& one : all) {
        if (!one->is_sister(comm)) continue;
        source_.ladder().fall(*one, make_error(ncclRemoteError), text, notice->only_this, false);
      }
      fails = true;
    } else if (const auto* const question = std::get_if<position_question>(&*message)) {
      source_.questions().answer(comm, question->number, from);
    } else {
      source_.questions().note_answer(comm, position_answer(std::get<position_answer>(*message)));
    }
    next = sister_up(comm);
    if (!next) next = goes_on_parting(comm, fails);
  });
  source_.wake();
  return next;
}

COHORT_INLINE void fault_messages::notify(const handle& comm, std::error_code why,
                                          const std::string& text, bool only_this) {
  if (!comm->mpi || source_.engine().stopped()) return;
  send_to(comm, fault_notice{comm->token, only_this, why.message() + ": " + text}, every_peer);
}

COHORT_INLINE void fault_messages::send_to(const handle& comm, fault_message&& message, int only) {
  if (comm->channel->parted) return;
  const int ranks = comm->mpi.size();
  for (int peer = 0; peer < ranks; ++peer) {
    if (only == every_peer || peer == only) ++comm->channel->with(peer, ranks).sent;
  }
  const auto bytes = std::make_shared<const fault_bytes>(encode(message));
  asio::post(to_peers_, [comm, bytes, only] {
    for (int peer = 0; comm->mpi && peer < comm->mpi.size(); ++peer) {
      if (peer == comm->mpi.rank() || (only != every_peer && peer != only)) continue;
      comm->channel->send(peer, *bytes);
    }
  });
}

COHORT_INLINE void fault_messages::silence(const handle& comm) {
  if (!source_.engine().stopped() && !sister_up(*comm)) close(comm->channel);
}

COHORT_INLINE void fault_messages::close(std::shared_ptr<fault_channel> which) {
  asio::post(to_peers_, [channel = std::move(which)] { channel->close(); });
}

COHORT_INLINE void fault_messages::part(const handle& comm) {
  if (sister_up(*comm)) return;
  if (!comm->mpi || comm->mpi.size() == 1) return silence(comm);
  if (source_.is_in_place()) return comm->keep_mpi();  // nobody would hear what comes
  fault_channel& channel = *comm->channel;
  const int ranks = comm->mpi.size();
  for (int peer = 0; peer < ranks; ++peer) {
    send_to(comm, fault_goodbye{comm->token, channel.with(peer, ranks).sent}, peer);
  }
  channel.parted = true;
  if (channel.is_over(comm->mpi.rank())) return silence(comm);
  // Who has borrowed one from its owner may drop it long before the others do.
  const auto bound = comm->borrowed ? std::chrono::nanoseconds::max() : comm->options.answer_bound;
  partings_.push_back({comm, bound, std::chrono::steady_clock::now()});
}

/// After each message: the communicator that has left, if more messages may come for it. `fails`: a
/// peer's has not ended in order.
COHORT_INLINE fault_messages::handle fault_messages::goes_on_parting(const communicator_state& comm,
                                                                     bool fails) {
  const auto found = std::find_if(partings_.begin(), partings_.end(), [&](const parting& each) {
    return each.comm->channel == comm.channel;
  });
  if (found == partings_.end()) return nullptr;
  if (!fails && !comm.channel->is_over(comm.mpi.rank())) return found->comm;
  if (fails) found->comm->keep_mpi();
  partings_.erase(found);  // the caller has a share of it
  source_.recount();
  return nullptr;
}

COHORT_INLINE std::size_t fault_messages::pending() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(partings_.begin(), partings_.end(),
                    [](const parting& each) { return !each.comm->borrowed; }));
}

/// Only time in which this rank looks counts: after a long handler the goodbyes may be there.
COHORT_INLINE void fault_messages::look() {
  std::erase_if(partings_, [&](parting& each) {
    const auto now = std::chrono::steady_clock::now();
    each.left -=
        std::min<std::chrono::nanoseconds>(now - std::exchange(each.looked, now), longest_advance);
    if (each.left > each.left.zero()) return false;
    each.comm->keep_mpi();
    silence(each.comm);
    return true;
  });
}

COHORT_INLINE std::vector<fault_messages::parting> fault_messages::let_go() {
  for (const parting& each : partings_) each.comm->keep_mpi();
  return std::exchange(partings_, {});
}

// ---- questions -------------------------------------------------------------------------------

COHORT_INLINE bool inquiries::can_ask(const communicator_state& comm) const {
  return comm.size != 1 && comm.mpi && !source_.is_in_place();
}

COHORT_INLINE bool inquiries::ask(communicator_state& comm, const work& op,
                                  const std::string& about, std::error_code why, bool aborts) {
  if (!can_ask(comm)) return false;
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

/// `comm.asked` says what about.
COHORT_INLINE void inquiries::send_question(communicator_state& comm) {
  inquiry& made = *comm.asked;
  made.number = ++numbers_;
  made.until = std::chrono::steady_clock::now() + comm.options.answer_bound;
  made.answers.resize(static_cast<std::size_t>(comm.size));
  for (const auto& one : source_.comms()) {
    if (!one->is_sister(comm)) continue;
    made.answers[static_cast<std::size_t>(one->rank)] = position_of(*one);
  }
  source_.messages().send_to(comm.shared_from_this(), position_question{comm.token, made.number},
                             fault_messages::every_peer);
}

COHORT_INLINE bool inquiries::inquire(communicator_state& comm,
                                      std::function<void(const std::string&)> report) {
  if (!can_ask(comm) || comm.stands != phase::ready) {
    report({});
    return true;
  }
  if (comm.asked) return false;
  comm.asked.emplace().report = std::move(report);
  send_question(comm);
  source_.recount();
  source_.wake();
  return true;
}

COHORT_INLINE rank_position inquiries::position_of(const communicator_state& comm) {
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
  source_.queue_of(comm.device).for_each([&](const work& op, standing where) {
    if (oldest != nullptr || op.comm.get() != &comm) return;
    oldest = &op;
    at.stands = where;
  });
  if (oldest == nullptr) return at;
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(
      oldest->age.length(std::chrono::steady_clock::now()));
  at.sequence = oldest->sequence;
  at.bytes = oldest->bytes;
  at.milliseconds = static_cast<std::uint64_t>(age.count());
  at.verb = oldest->verb;
  return at;
}

/// For each device of this process.
COHORT_INLINE void inquiries::answer(const communicator_state& comm, std::uint64_t number,
                                     int asker) {
  if (source_.engine().stopped()) return;
  for (const auto& one : source_.comms()) {
    if (!one->is_sister(comm)) continue;
    position_answer said{one->token, number, static_cast<std::uint32_t>(one->rank),
                         position_of(*one)};
    source_.messages().send_to(one, std::move(said), asker);
  }
}

COHORT_INLINE void inquiries::note_answer(const communicator_state& comm, position_answer&& said) {
  for (const auto& one : source_.comms()) {
    if (!one->is_sister(comm) || !one->asked || one->asked->number != said.number) continue;
    if (said.rank >= one->asked->answers.size()) return;
    one->asked->answers[said.rank] = std::move(said.position);
    return;
  }
}

COHORT_INLINE std::size_t inquiries::pending() const noexcept {
  const auto& all = source_.comms();
  return static_cast<std::size_t>(std::count_if(
      all.begin(), all.end(), [](const auto& comm) { return comm->asked && comm->asked->report; }));
}

COHORT_INLINE void inquiries::look() {
  const auto has_asked = [](const auto& comm) { return comm->asked.has_value(); };
  if (std::none_of(source_.comms().begin(), source_.comms().end(), has_asked)) return;
  const auto all = source_.comms();
  for (const auto& comm : all) {
    if (!comm->asked) continue;
    if (!comm->asked->is_answered() && std::chrono::steady_clock::now() < comm->asked->until) {
      continue;
    }
    conclude(*comm);
  }
}

COHORT_INLINE void inquiries::conclude(communicator_state& comm) {
  const inquiry asked = std::move(*comm.asked);
  comm.asked.reset();
  const std::string found =
      "; asked the ranks: " +
      findings(asked, comm.rank,
               std::chrono::duration_cast<std::chrono::milliseconds>(comm.options.answer_bound));
  if (asked.report) return asked.report(found);
  bool is_pending = false;
  const work* overdue = nullptr;  // another one, whose deadline came while this was being asked
  source_.for_each_pending([&](const work& op, standing) {
    if (op.comm.get() != &comm) return;
    is_pending = is_pending || op.sequence == asked.sequence;
    if (overdue == nullptr && op.overdue) overdue = &op;
  });
  if (!is_pending) {  // it has ended after all
    if (overdue == nullptr) return;
    const std::string text = overdue->line("deadline");
    const std::error_code why = errc::deadline_exceeded;
    if (!ask(comm, *overdue, text, why, true)) source_.ladder().fall(comm, why, text, false, true);
    return;
  }
  const std::string text = asked.about + found;
  if (asked.aborts) {
    source_.ladder().fall(comm, asked.why, text, false, true);
  } else if (asked.why) {
    comm.remember({asked.why, text});
  } else {
    log::write(log::level::warning, text);
  }
}

// ---- deadlines and stalls --------------------------------------------------------------------

COHORT_INLINE std::string work::line(const char* stands) const {
  std::string text = "  rank " + std::to_string(comm->rank);
  text.append(": nccl ").append(verb).append(" #").append(std::to_string(sequence));
  text.append(", bytes=").append(std::to_string(bytes)).append(", device=");
  text.append(std::to_string(comm->device)).append(", ").append(stands).append(", for ");
  return text.append(age.milliseconds(std::chrono::steady_clock::now()));
}

COHORT_INLINE std::string inquiries::pending_lines() const {
  std::string lines;
  source_.for_each_pending(
      [&](const work& op, standing where) { lines.append("\n").append(op.line(in_words(where))); });
  return lines;
}

COHORT_INLINE bool inquiries::deadline_passed(work& given) {
  return source_.exclusively([&] {
    if (!given.pending) return false;
    work* which = &given;
    if (given.joined) {
      auto& parts = given.joined->parts;
      which =
          &*std::find_if(parts.begin(), parts.end(), [](const work& one) { return one.pending; });
    }
    work& op = *which;
    communicator_state& comm = *op.comm;
    const bool abort = comm.options.on_deadline == on_deadline::abort;
    const std::error_code why = errc::deadline_exceeded;
    const std::string text = op.line("deadline");
    if (!abort || (comm.borrowed && !comm.options.abort_borrowed)) {
      comm.remember({why, text + "; NCCL cannot give it up; waiting on"});
      ask(comm, op, text, why, false);
      return true;
    }
    op.overdue = true;
    // Who holds it up is found out first.
    if (!ask(comm, op, text, why, true)) source_.ladder().fall(comm, why, text, false, true);
    source_.wake();
    return true;
  });
}

COHORT_INLINE void inquiries::tick(std::chrono::steady_clock::time_point now) {
  std::string lines;
  source_.exclusively([&] {
    source_.for_each_pending([&](work& op, standing where) {
      if (!stalls_.is_due(op.age, now)) return;
      ask(*op.comm, op, op.line("stalled"), {}, false);
      lines.append("\n").append(op.line(in_words(where)));
    });
  });
  stalls_.warn(lines);
}

}  // namespace cohort::nccl
