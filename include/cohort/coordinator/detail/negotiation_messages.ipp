// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Control messages, their fragments, and what happens when one fails.

#include <cohort/coordinator/negotiation.hpp>

#include <algorithm>

namespace cohort::coordination {

// ---- control operations -------------------------------------------------------------------------

template <class Any>
negotiation<Any>::control_operation::control_operation(negotiation& owner, std::size_t edge,
                                                       bool sends) noexcept
    : request_operation(&run), owner_(&owner), edge_(edge), sends_(sends) {
  advance_ = &advanced;
  advances_failed_ = true;
  cancellable = !sends;
  stalls = false;  // what waits for messages has names, and report() tells them
  verb = sends ? "control_send" : "control_recv";
  rank = owner.rank_;
}

template <class Any>
bool negotiation<Any>::control_operation::advanced(request_operation* base) {
  auto* self = static_cast<control_operation*>(base);
  negotiation& owner = *self->owner_;
  bool goes_on = false;
  if (self->failed()) {
    owner.control_failed(*self);
  } else {
    goes_on = self->sends_ ? owner.sent(*self) : owner.received(*self);
  }
  if (!goes_on) {
    if (!self->sends_) owner.edges_[self->edge_].receive = nullptr;
    self->owner_ = nullptr;
    --owner.control_operations_;
    owner.check_released();
  }
  return goes_on;
}

template <class Any>
void negotiation<Any>::control_operation::run(operation* base, action) {
  delete static_cast<control_operation*>(base);
}

// ---- messages -----------------------------------------------------------------------------------

//
// A message is one byte, 1 if it goes on in the next one, and bytes of the protocol. [protocol T1]

template <class Any>
void negotiation<Any>::post_receive(std::size_t index) {
  auto* op = new control_operation(*this, index, false);
  ++control_operations_;
  edges_[index].receive = op;
  source_.mark_idle(*op);
  const int rc = repost_receive(*op);
  if (rc == MPI_SUCCESS) return;
  edges_[index].receive = nullptr;
  --control_operations_;
  delete op;
  mpi::check(rc, "MPI_Irecv");
}

template <class Any>
int negotiation<Any>::repost_receive(control_operation& op) {
  edge& from = edges_[op.edge_];
  MPI_Request request = MPI_REQUEST_NULL;
  const int rc = mpi::post::irecv(from.in.data(), static_cast<MPI_Count>(from.in.size()), MPI_BYTE,
                                  from.rank, control_tag, control_.native(), &request);
  if (rc == MPI_SUCCESS) source_.add(request, op);
  return rc;
}

template <class Any>
bool negotiation<Any>::received(control_operation& op) {
  if (broken_ || to_break_) {  // the node knows of tasks that have ended
    check_released();
    return false;
  }
  edge& from = edges_[op.edge_];
  int count = 0;
  MPI_Get_count(&op.status, MPI_BYTE, &count);
  ++statistics_.messages_received;
  const std::span<const std::byte> bytes(from.in.data(), static_cast<std::size_t>(count));
  try {
    if (bytes.empty()) {
      throw protocol::protocol_error(protocol::fault::malformed,
                                     "an empty message from rank " + std::to_string(from.rank));
    }
    const auto part = bytes.subspan(1);
    if (bytes[0] == ping) {
      from.answers = true;
      flush();
    } else if (bytes[0] == pong) {
      answered_ = clock::now();
    } else if (bytes[0] == all_closed) {
      settle();
    } else if (bytes[0] == has_broken) {
      peer_broke(bytes);
    } else if (bytes[0] != std::byte{0} || !from.assembly.empty()) {
      from.assembly.insert(from.assembly.end(), part.begin(), part.end());
      if (bytes[0] == std::byte{0}) {
        take(from.rank, from.assembly);
        from.assembly.clear();
      }
    } else {
      take(from.rank, part);
    }
  } catch (...) {
    break_down(std::current_exception());
    return false;
  }
  stay_awake();
  check_released();
  if (releasing_) return false;
  const int rc = repost_receive(op);
  if (rc == MPI_SUCCESS) return true;
  op.fail(mpi::make_error(rc));
  control_failed(op);
  return false;
}

template <class Any>
void negotiation<Any>::take(int from, std::span<const std::byte> message) {
  node_.receive(from, message, nanoseconds(engine_.coarse_now()));
  advance();
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
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    edge& one = edges_[i];
    if (!one.sending && one.answers) {
      one.answers = false;
      send_sign(i, pong);
    }
    if (!one.sending && one.asks) {
      one.asks = false;
      send_sign(i, ping);
    }
    if (!one.sending && node_.has_message(one.rank)) send(i);
    if (!one.sending && one.settles) {
      one.settles = false;
      send_sign(i, all_closed);
    }
  }
}

template <class Any>
void negotiation<Any>::send_sign(std::size_t index, std::byte sign) {
  edge& to = edges_[index];
  to.out.assign(1, sign);
  to.sent = 0;
  to.sending = true;
  post_out(index);
}

template <class Any>
void negotiation<Any>::send(std::size_t index) {
  edge& to = edges_[index];
  to.out.clear();
  to.out.push_back(std::byte{0});
  if (!node_.take_message(to.rank, to.out)) return;
  to.sent = 0;
  to.sending = true;
  post_out(index);
}

template <class Any>
void negotiation<Any>::post_out(std::size_t index) {
  edge& to = edges_[index];
  MPI_Request request = MPI_REQUEST_NULL;
  do {
    if (const int rc = post_fragment(index, request); rc != MPI_SUCCESS) {
      to.sending = false;
      std::rethrow_exception(no_connection(to.rank, mpi::make_error(rc)));
    }
    // Short messages have left when MPI returns: they need not wait for a look.
    if (!comm::request_source::complete_already(request)) {
      auto* op = new control_operation(*this, index, true);
      op->peer = to.rank;
      ++control_operations_;
      source_.add(request, *op);
      wake_receiver(index);  // for without it a longer message does not leave
      return;
    }
    has_left(index);
  } while (to.sending);
}

// The byte before a fragment is overwritten; it has been sent with the fragment before.
template <class Any>
int negotiation<Any>::post_fragment(std::size_t index, MPI_Request& request) {
  edge& to = edges_[index];
  const auto most = static_cast<std::size_t>(options_.control_message);
  const std::size_t left = to.out.size() - to.sent;
  const std::size_t bytes = std::min(left, most);
  if (to.out.size() > 1) to.out[to.sent] = bytes < left ? std::byte{1} : std::byte{0};
  const int rc = mpi::post::isend(to.out.data() + to.sent, static_cast<MPI_Count>(bytes), MPI_BYTE,
                                  to.rank, control_tag, control_.native(), &request);
  if (rc != MPI_SUCCESS) return rc;
  to.sent += bytes < left ? bytes - 1 : bytes;
  ++statistics_.messages_sent;
  statistics_.bytes_sent += bytes;
  return rc;
}

template <class Any>
void negotiation<Any>::wake_receiver(std::size_t index) {
  if (const auto& bells = control_.state()->bells) {
    bells->announce(control_.state()->bell_rank(edges_[index].rank));
  }
}

/// MPI has taken a fragment.
template <class Any>
void negotiation<Any>::has_left(std::size_t index) {
  wake_receiver(index);
  edges_[index].sending = edges_[index].sent < edges_[index].out.size();
}

template <class Any>
bool negotiation<Any>::sent(control_operation& op) {
  if (broken_) {
    wake_receiver(op.edge_);
    edges_[op.edge_].sending = false;
    return false;
  }
  has_left(op.edge_);
  edge& to = edges_[op.edge_];
  if (to.sending) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = post_fragment(op.edge_, request);
    if (rc == MPI_SUCCESS) {
      source_.add(request, op);
      return true;
    }
    op.fail(mpi::make_error(rc));
    control_failed(op);
    return false;
  }
  if (node_.has_message(to.rank) || to.asks || to.answers || to.settles) touch();
  return false;
}

// MPI says that a message cannot be sent or received: the instance ends here, as when a member
// dies. A cancelled receive is the end that was asked for.
template <class Any>
void negotiation<Any>::control_failed(control_operation& op) {
  if (op.sends_) {
    edges_[op.edge_].sending = false;
    edges_[op.edge_].sent = 0;  // it has not arrived
  }
  if (releasing_ || closed_) return;
  process::missing.fetch_add(1);  // for good
  break_down(no_connection(edges_[op.edge_].rank, op.error()));
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
  return node_.log().closed && node_.has_log(child.rank) && child.sent == child.out.size() &&
         (!closed_by_fault_ || (settled_ && !child.settles));
}

// The others would wait for this rank until their deadlines. So it sends one more message to each
// neighbour, who passes it on; also to the one to whom the last has failed, for that may have been
// for want of memory. What does not arrive, they find out at their deadlines.
template <class Any>
void negotiation<Any>::tell_broken() {
  const std::size_t above = edges_.size() - node_.shape().children().size();
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    edge& to = edges_[i];
    if (i >= above && can_end(to)) continue;
    const int first = lost_ < 0 ? rank_ : lost_;
    to.last[0] = has_broken;
    for (unsigned byte = 0; byte < 4; ++byte) {
      to.last[1 + byte] = static_cast<std::byte>(static_cast<unsigned>(first) >> 8 * byte);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    if (mpi::post::isend(to.last.data(), static_cast<MPI_Count>(to.last.size()), MPI_BYTE, to.rank,
                         control_tag, control_.native(), &request) != MPI_SUCCESS) {
      continue;
    }
    ++statistics_.messages_sent;
    statistics_.bytes_sent += to.last.size();
    if (!comm::request_source::complete_already(request)) {
      auto* op = new control_operation(*this, i, true);
      op->peer = to.rank;
      ++control_operations_;
      source_.add(request, *op);
    }
    wake_receiver(i);
  }
}

template <class Any>
void negotiation<Any>::peer_broke(std::span<const std::byte> message) {
  unsigned first = 0;
  for (std::size_t byte = std::min<std::size_t>(message.size(), 5); byte-- > 1;) {
    first = first << 8U | static_cast<unsigned>(message[byte]);
  }
  if (message.size() != 5 || first >= static_cast<unsigned>(size_)) {
    throw protocol::protocol_error(protocol::fault::malformed, "a last message");
  }
  lost_ = static_cast<int>(first);
  throw peer_lost_error({lost_}, "rank " + std::to_string(rank_) + ": coordinator: rank " +
                                     std::to_string(lost_) +
                                     " has closed: it cannot send or receive control messages");
}

}  // namespace cohort::coordination
