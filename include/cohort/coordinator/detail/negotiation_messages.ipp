// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Messages to the neighbours in the tree, and what happens when one fails.

#include <cohort/coordinator/negotiation.hpp>
#include <cohort/core/wire.hpp>

#include <algorithm>

namespace cohort::coordination {

/// What a message is. [protocol T1]
enum message_kind : unsigned {
  of_protocol,
  ping,        // is somebody there?
  pong,        // yes
  all_closed,  // all ranks have closed after a fault
  has_broken   // who sends it has broken down, or has heard of a rank that has; with its number
};

template <class Any>
auto negotiation<Any>::edge_to(int rank) -> edge& {
  return *std::find_if(edges_.begin(), edges_.end(),
                       [rank](const edge& one) { return one.rank == rank; });
}

template <class Any>
void negotiation<Any>::received(int from, unsigned kind, std::span<const std::byte> message) {
  if (!broken_ && !to_break_) {  // else the node knows of tasks that have ended
    try {
      switch (kind) {
        case of_protocol:
          node_.receive(from, message, nanoseconds(engine_.coarse_now()));
          advance();
          break;
        case ping:
          edge_to(from).answers = true;
          flush();
          break;
        case pong:
          answered_ = clock::now();
          break;
        case all_closed:
          settle();
          break;
        case has_broken:
          peer_broke(message);
        default:
          throw protocol::protocol_error(protocol::fault::malformed,
                                         "a message of no kind from rank " + std::to_string(from));
      }
    } catch (...) {
      return break_down(std::current_exception());
    }
    stay_awake();
  }
  check_released();
}

template <class Any>
void negotiation<Any>::malformed(int from, const char* what) {
  break_down(std::make_exception_ptr(protocol::protocol_error(
      protocol::fault::malformed, what + (" from rank " + std::to_string(from)))));
}

// Messages first: what is started here then overlaps with their way. A burst of submissions comes
// as one message, so deciding at once separates nothing that could have shared a pack.
template <class Any>
void negotiation<Any>::advance() {
  unsent_ = 0;
  if (done_ != 0) node_.finished(std::exchange(done_, 0));
  node_.decide();
  flush();
  perform();
  flush();
  if (!adding_.empty()) confirm_sets();
}

template <class Any>
void negotiation<Any>::flush() {
  for (edge& one : edges_) {
    const auto may_say = [&](bool& wanted) {
      return wanted && !channel_.sending(one.rank) && std::exchange(wanted, false);
    };
    if (may_say(one.answers)) say(one.rank, pong);
    if (may_say(one.asks)) say(one.rank, ping);
    if (!channel_.sending(one.rank) && node_.has_message(one.rank)) say(one.rank, of_protocol);
    if (may_say(one.settles)) say(one.rank, all_closed);
  }
}

template <class Any>
void negotiation<Any>::say(int to, unsigned kind) {
  std::vector<std::byte>& message = channel_.message(to);
  if (kind == of_protocol && !node_.take_message(to, message)) return;
  if (const std::error_code why = channel_.send(to, kind)) {
    std::rethrow_exception(no_connection(to, why));
  }
}

template <class Any>
void negotiation<Any>::sent(int to) {
  if (broken_) return;
  const edge& one = edge_to(to);
  if (node_.has_message(to) || one.asks || one.answers || one.settles) touch();
}

// MPI says that a message cannot be sent or received: the instance ends here, as when a member
// dies.
template <class Any>
void negotiation<Any>::failed(int peer, bool, std::error_code why) {
  if (closed_) return;
  process::missing.fetch_add(1);  // for good
  break_down(no_connection(peer, why));
}

template <class Any>
std::exception_ptr negotiation<Any>::no_connection(int peer, std::error_code why) const {
  return std::make_exception_ptr(peer_lost_error(
      {peer}, "rank " + std::to_string(rank_) + ": coordinator: no connection to rank " +
                  std::to_string(peer) + reason_of(why)));
}

/// Whether a child has, or will get, all that it needs to end: CLOSE, and after a fault the word
/// that all have closed. It ends before its parent, and nobody would receive more.
template <class Any>
bool negotiation<Any>::can_end(const edge& child) const noexcept {
  return node_.log().closed && node_.has_log(child.rank) && channel_.all_posted(child.rank) &&
         (!closed_by_fault_ || (settled_ && !child.settles));
}

// The others would wait for this rank until their deadlines. So it sends one more message to each
// neighbour, who passes it on; also to the one to whom the last has failed, for that may have been
// for want of memory. What does not arrive, they find out at their deadlines.
template <class Any>
void negotiation<Any>::tell_broken() {
  const std::size_t above = edges_.size() - node_.shape().children().size();
  const auto first = static_cast<std::uint32_t>(lost_ < 0 ? rank_ : lost_);
  std::vector<std::byte> message;
  wire::writer(message).put(first);
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    if (i < above || !can_end(edges_[i]))
      channel_.send_at_once(edges_[i].rank, has_broken, message);
  }
}

template <class Any>
void negotiation<Any>::peer_broke(std::span<const std::byte> message) {
  wire::reader in(message);
  std::uint32_t first = 0;
  in.get(first);
  if (!in.ok() || in.left() != 0 || first >= static_cast<unsigned>(size_)) {
    throw protocol::protocol_error(protocol::fault::malformed, "a last message");
  }
  lost_ = static_cast<int>(first);
  throw peer_lost_error({lost_}, "rank " + std::to_string(rank_) + ": coordinator: rank " +
                                     std::to_string(lost_) +
                                     " has closed: it cannot send or receive control messages");
}

}  // namespace cohort::coordination
