// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What ranks tell each other about faults: bodies of `nccl/faults/channel.hpp`.

#include <cohort/nccl/faults/channel.hpp>
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
  if (comm && source_.messages().hear(*comm, decode(message), from)) return;
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

COHORT_INLINE fault_messages::handle fault_messages::hear(
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

COHORT_INLINE void fault_messages::tell(const handle& comm, std::error_code why,
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

/// After each message: the one that has left, if more may come to it. `fails`: a peer's has not
/// ended in order.
COHORT_INLINE fault_messages::handle fault_messages::goes_on_parting(const communicator_state& comm,
                                                                     bool fails) {
  const auto found = std::find_if(partings_.begin(), partings_.end(), [&](const parting& each) {
    return each.comm->channel == comm.channel;
  });
  if (found == partings_.end()) return nullptr;
  if (!fails && !comm.channel->is_over(comm.mpi.rank())) return found->comm;
  if (fails) found->comm->keep_mpi();
  partings_.erase(found);  // who has heard this has a share of it
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
        std::min<std::chrono::nanoseconds>(now - std::exchange(each.looked, now), longest_step);
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

}  // namespace cohort::nccl
