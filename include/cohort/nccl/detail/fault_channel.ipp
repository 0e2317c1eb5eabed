// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What ranks tell each other about faults: bodies of `nccl/source.hpp`.

#include <cohort/nccl/fault_channel.hpp>
#include <cohort/nccl/source.hpp>

#include <algorithm>
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
  if (comm && source_.hear(*comm, decode(message), from)) return;
  source_.close(shared_from_this());  // nothing more can come
}

COHORT_INLINE void issue_source::listen(const std::shared_ptr<communicator_state>& which) {
  if (which->mpi.size() == 1) return;
  asio::post(to_peers_, [still = std::weak_ptr(which)] {
    if (const auto comm = still.lock()) comm->channel->listen();
  });
}

COHORT_INLINE bool issue_source::is_up(const communicator_state& comm) noexcept {
  const phase stands = comm.stands.load();
  return stands != phase::failed && stands != phase::gone && stands != phase::leaked;
}

/// With the lock held: this handle, or another one of the same communicator.
COHORT_INLINE std::shared_ptr<communicator_state> issue_source::sister_up(
    const communicator_state& comm) const {
  const auto found = std::find_if(comms_.begin(), comms_.end(), [&](const auto& one) {
    return one->is_sister(comm) && is_up(*one);
  });
  return found == comms_.end() ? nullptr : *found;
}

// A communicator of MPI is not freed while something may come over it. A rank whose communicator
// has ended says goodbye to each of the others, with the number of its messages to that one, and
// goes on listening until it has heard the same of all of them and all that they have sent. Where
// that does not come, and after a failure, MPI keeps its communicator for good.

/// What is no message, or is about another communicator, is dropped. Returns for whom to listen
/// further, since this handle may have ended before others of the communicator. Null: nothing more
/// can come.
COHORT_INLINE std::shared_ptr<communicator_state> issue_source::hear(
    const communicator_state& comm, const std::optional<fault_message>& message, int from) {
  const auto token = [](const auto& one) { return one.token; };
  const bool is_ours = message && std::visit(token, *message) == comm.token;
  std::shared_ptr<communicator_state> next;
  {
    const std::lock_guard hold(mutex_);
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
      const auto all = comms_;
      for (const auto& one : all) {
        if (!one->is_sister(comm)) continue;
        fall(*one, make_error(ncclRemoteError), text, notice->only_this, false);
      }
      fails = true;
    } else if (const auto* const question = std::get_if<position_question>(&*message)) {
      answer(comm, question->number, from);
    } else {
      note_answer(comm, position_answer(std::get<position_answer>(*message)));
    }
    next = sister_up(comm);
    if (!next) next = goes_on_parting(comm, fails);
  }
  engine_.started();
  return next;
}

COHORT_INLINE void issue_source::tell(const std::shared_ptr<communicator_state>& comm,
                                      std::error_code why, const std::string& text,
                                      bool only_this) {
  if (!comm->mpi || engine_.stopped()) return;
  send_to(comm, fault_notice{comm->token, only_this, why.message() + ": " + text}, every_peer);
}

/// With the lock held. To one rank of MPI or to all others.
COHORT_INLINE void issue_source::send_to(const std::shared_ptr<communicator_state>& comm,
                                         fault_message&& message, int only) {
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

COHORT_INLINE void issue_source::silence(const std::shared_ptr<communicator_state>& comm) {
  if (!engine_.stopped() && !sister_up(*comm)) close(comm->channel);
}

COHORT_INLINE void issue_source::close(std::shared_ptr<fault_channel> which) {
  asio::post(to_peers_, [channel = std::move(which)] { channel->close(); });
}

/// In a lap: it has ended in order.
COHORT_INLINE void issue_source::part(const std::shared_ptr<communicator_state>& comm) {
  if (sister_up(*comm)) return;
  if (!comm->mpi || comm->mpi.size() == 1) return silence(comm);
  if (is_in_place()) return comm->keep_mpi();  // nobody would hear what comes
  fault_channel& channel = *comm->channel;
  const int ranks = comm->mpi.size();
  for (int peer = 0; peer < ranks; ++peer) {
    send_to(comm, fault_goodbye{comm->token, channel.with(peer, ranks).sent}, peer);
  }
  channel.parted = true;
  if (channel.is_over(comm->mpi.rank())) return silence(comm);
  // Who has borrowed one from its owner may drop it long before the others do.
  const clock::duration bound =
      comm->borrowed ? clock::duration::max() : comm->options.answer_bound;
  partings_.push_back({comm, bound, clock::now()});
}

/// With the lock held, after each message: the one that has left, if more may come to it.
/// `fails`: a peer's has not ended in order.
COHORT_INLINE std::shared_ptr<communicator_state> issue_source::goes_on_parting(
    const communicator_state& comm, bool fails) {
  const auto found = std::find_if(partings_.begin(), partings_.end(), [&](const parting& each) {
    return each.comm->channel == comm.channel;
  });
  if (found == partings_.end()) return nullptr;
  if (!fails && !comm.channel->is_over(comm.mpi.rank())) return found->comm;
  if (fails) found->comm->keep_mpi();
  partings_.erase(found);  // who has heard this has a share of it
  recount();
  return nullptr;
}

/// Only time in which this rank looks counts: after a long handler the goodbyes may be there.
COHORT_INLINE void issue_source::look_at_partings() {
  std::erase_if(partings_, [&](parting& each) {
    const auto now = clock::now();
    each.left -= std::min<clock::duration>(now - std::exchange(each.looked, now), longest_step);
    if (each.left > clock::duration::zero()) return false;
    each.comm->keep_mpi();
    silence(each.comm);
    return true;
  });
}

}  // namespace cohort::nccl
