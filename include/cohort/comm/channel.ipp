// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/channel.hpp`.

#include <cohort/comm/channel.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/mpi/post.hpp>

#include <utility>

namespace cohort::comm {

/// A message on its way, or a receive. It frees itself when the engine delivers it.
class channel::control_operation final : public request_operation {
 public:
  control_operation(channel& owner, int other, bool is_send) noexcept
      : request_operation(&run), sends(is_send), owner_(owner) {
    advance_ = &advanced;
    advances_failed_ = true;
    cancellable = !is_send;
    stalls = false;              // its owner knows who waits
    waits_for_turn_ = !is_send;  // goes on without a request while the channel pauses
    verb = is_send ? owner.options_.send_verb : owner.options_.receive_verb;
    rank = owner.rank_;
    peer = other;
  }
  const bool sends;
  bool waits = false;           // for the channel to go on, without a request
  bool alone = false;           // a message in between, which is in `held`
  std::vector<std::byte> held;  // what is received, or this message

  static void* operator new(std::size_t bytes) { return progress::pool::allocate(bytes); }
  static void operator delete(void* block) noexcept {
    progress::pool::deallocate(block, sizeof(control_operation));
  }

 private:
  friend class channel;
  static bool advanced(request_operation* base) {
    auto& self = *static_cast<control_operation*>(base);
    channel& owner = self.owner_;
    bool more = false;
    try {
      if (self.failed()) {
        owner.failed(self);
      } else {
        more = self.sends ? owner.sent(self) : owner.received(self);
      }
    } catch (...) {
      owner.forget(self);
      throw;
    }
    if (more) return true;
    owner.forget(self);
    owner.client_.settled();
    return false;
  }
  static void run(operation* base, action what) {
    const std::unique_ptr<control_operation> self(static_cast<control_operation*>(base));
    if (self->over_ || what == action::destroy) return;
    const request_source::guard hold(self->owner_.over_->source);  // it has failed without a look
    advanced(self.get());
  }

  channel& owner_;
  bool over_ = false;
};

COHORT_INLINE channel::channel(client& owner, const channel_options& options)
    : client_(owner), options_(options) {}

COHORT_INLINE channel::~channel() {
  for (control_operation* one : receives_) {
    if (one->waits) delete one;
  }
  if (over_ == nullptr) return;
  const request_source::guard hold(over_->source);
  over_->source.forget(*this);
}

COHORT_INLINE std::size_t channel::at_every_look() {
  constexpr int most = 64;  // of a rank in one look
  std::size_t found = 0;
  for (std::size_t i = 0; i < from_.size(); ++i) {
    const int from = from_[i];
    const auto take_one = [&](std::span<const std::byte> fragment) {
      try {
        take(from, fragment);
      } catch (...) {  // from its owner, for want of memory
        at(from).in.refuse();
      }
    };
    for (int taken = 0; taken < most && !paused_ && !closing_ && !receives_.empty(); ++taken) {
      if (!rings_->receive(from, take_one)) break;
      ++found;
    }
  }
  if (found != 0 && over_ != nullptr) over_->engine.attend();
  return found;
}

COHORT_INLINE channel::peer& channel::at(int rank) {
  std::unique_ptr<peer>& one = peers_[index(rank)];
  if (!one) one = std::make_unique<peer>(options_.longest);
  return *one;
}

COHORT_INLINE void channel::wake_receiver(int to) const noexcept {
  if (const auto& bells = over_->bells) bells->announce(over_->bell_rank(to));
}

/// A message that MPI has not taken yet needs a receiver that is awake, and the receiver may fall
/// asleep again before it has helped.
COHORT_INLINE std::size_t channel::at_look() {
  bool had_some = false;
  for (std::size_t to = 0; rings_ && to < peers_.size(); ++to) {
    if (!peers_[to] || !peers_[to]->waits) continue;
    had_some = true;
    try {
      if (fill_ring(static_cast<int>(to)) && !closing_) client_.sent(static_cast<int>(to));
    } catch (...) {  // for want of memory: its owner has not heard of it
    }
  }
  if (had_some && closing_ && operations_ == 0) {
    let_go();
    client_.settled();
    return 0;
  }
  if (under_way_ == 0) return 0;
  const auto now = progress::engine::clock::now();  // the engine's stands still at the end
  const bool due = now - rung_ >= std::chrono::milliseconds(1);
  if (due) rung_ = now;
  for (std::size_t to = 0; due && to < peers_.size(); ++to) {
    if (peers_[to] && peers_[to]->sending) wake_receiver(static_cast<int>(to));
  }
  over_->source.at_next_look(*this);
  return 0;
}

// ---- receives -----------------------------------------------------------------------------------

COHORT_INLINE void channel::open(const communicator& over, std::span<const int> peers,
                                 std::shared_ptr<message_rings> rings) {
  if (closing_) return;
  over_ = over.state();
  rank_ = over.rank();
  peers_.resize(static_cast<std::size_t>(over.size()));
  request_source& source = over_->source;
  if (!over_->bells) source.bell().forbid_parking();
  const int any = MPI_ANY_SOURCE;
  const auto from = peers.empty() ? std::span<const int>(&any, 1) : peers;
  receives_.reserve(from.size());
  if (rings) {
    from_.assign(peers.begin(), peers.end());
    for (int rank = 0; peers.empty() && rank < over.size(); ++rank) from_.push_back(rank);
    rings_ = std::move(rings);
    source.look_always(*this);
  }
  for (const int rank : rings_ ? std::span<const int>(&any, 1) : from) {
    auto op = std::make_unique<control_operation>(*this, rank, false);
    if (!rings_) op->held.resize(options_.fragment);
    source.make_room_for_probe();
    source.mark_idle(*op);
    // From here on it is MPI's, whatever is thrown, unless MPI refuses it.
    ++operations_;
    receives_.push_back(op.get());
    control_operation& posted = *op.release();
    if (const int rc = post_receive(posted); rc != MPI_SUCCESS) {
      forget(posted);
      delete &posted;
      mpi::check(rc, "MPI_Irecv");
    }
  }
}

COHORT_INLINE int channel::post_receive(control_operation& op) {
  op.waits = false;
  MPI_Request request = MPI_REQUEST_NULL;
  if (rings_) {  // by it the engine knows whether somebody waits
    over_->source.add_probe(op.peer, options_.tag, over_->data.native(), probe_kind::elsewhere, op);
    return MPI_SUCCESS;
  }
  const int rc = mpi::post::irecv(op.held.data(), static_cast<MPI_Count>(op.held.size()), MPI_BYTE,
                                  op.peer, options_.tag, over_->data.native(), &request);
  if (rc == MPI_SUCCESS) over_->source.add(request, op);
  return rc;
}

COHORT_INLINE void channel::take(int from, std::span<const std::byte> fragment) {
  ++statistics_.messages_received;
  try {
    const auto come = at(from).in.take(fragment);
    if (come.refused != nullptr) {
      client_.malformed(from, come.refused);
    } else if (come.whole) {
      if (options_.one_by_one) paused_ = true;
      client_.received(from, come.kind, come.bytes);
    }
  } catch (const std::bad_alloc&) {
    at(from).in.refuse();
    client_.malformed(from, "a message for which there is no memory");
  }
}

COHORT_INLINE bool channel::received(control_operation& op) {
  if (closing_) return false;
  over_->engine.attend();
  int count = 0;
  MPI_Get_count(&op.status, MPI_BYTE, &count);
  take(op.status.MPI_SOURCE,
       std::span<const std::byte>(op.held).first(static_cast<std::size_t>(count)));
  if (closing_) return false;
  op.waits = paused_;
  if (paused_) return true;
  const int rc = post_receive(op);
  return rc == MPI_SUCCESS || fail(op, rc);
}

COHORT_INLINE void channel::resume() {
  if (!std::exchange(paused_, false)) return;
  if (rings_) over_->source.at_next_look(*this);  // which looks at what has come meanwhile
  bool ended = false;
  for (std::size_t i = 0; i < receives_.size() && !closing_;) {
    control_operation* const op = receives_[i];
    const int rc = op->waits ? post_receive(*op) : MPI_SUCCESS;
    if (rc == MPI_SUCCESS || fail(*op, rc)) {
      ++i;
      continue;
    }
    forget(*op);
    delete op;
    ended = true;
  }
  if (ended) client_.settled();
}

COHORT_INLINE void channel::expect(bool yes) noexcept {
  if (!receives_.empty()) over_->source.set_idle(*receives_.front(), !yes);
}

COHORT_INLINE void channel::close() {
  if (std::exchange(closing_, true) || over_ == nullptr) return;
  request_source& source = over_->source;
  const auto all = receives_;
  for (control_operation* op : all) {
    if (request_source::pending(*op)) {
      source.set_idle(*op, false);
      source.cancel(*op);
    } else if (op->waits) {  // else its stage runs, or is about to, and ends it
      forget(*op);
      delete op;
    }
  }
  paused_ = false;
  let_go();
}

// ---- sends --------------------------------------------------------------------------------------

COHORT_INLINE std::vector<std::byte>& channel::message(int to) { return at(to).out.begin(); }

COHORT_INLINE std::error_code channel::send(int to, unsigned kind) {
  if (over_ == nullptr) return errc::closed;
  peer& one = at(to);
  if (rings_) {
    one.out.finish(kind);
    one.sending = true;
    ++under_way_;
    fill_ring(to);
    return {};
  }
  // Made before MPI has the message: it is needed if the message does not leave at once.
  if (!spare_) spare_ = std::make_unique<control_operation>(*this, -1, true);
  one.out.finish(kind);
  one.sending = true;
  ++under_way_;
  MPI_Request request = MPI_REQUEST_NULL;
  do {
    const auto fragment = one.out.next(options_.fragment);
    if (const int rc = post_fragment(to, fragment, request); rc != MPI_SUCCESS) {
      one.sending = false;
      --under_way_;
      one.out.lose();
      return mpi::make_error(rc);
    }
    // Short messages have left when MPI returns: they need not wait for a look.
    if (!request_source::complete_already(request)) {
      control_operation& op = *spare_.release();
      op.peer = to;
      op.bytes = one.out.size();
      ++operations_;
      over_->source.add(request, op);
      wake_receiver(to);  // for without it a longer message does not leave
      rung_ = progress::engine::clock::now();
      over_->source.at_next_look(*this);
      return {};
    }
    has_left(to);
  } while (one.sending);
  return {};
}

COHORT_INLINE int channel::post_fragment(int to, std::span<const std::byte> fragment,
                                         MPI_Request& request) {
  peer& one = at(to);
  over_->engine.attend_sent();
  const int rc = mpi::post::isend(fragment.data(), static_cast<MPI_Count>(fragment.size()),
                                  MPI_BYTE, to, options_.tag, over_->data.native(), &request);
  if (rc == MPI_SUCCESS) count_fragment(one, fragment.size());
  return rc;
}

COHORT_INLINE void channel::count_fragment(peer& to, std::size_t bytes) noexcept {
  ++to.messages;
  ++statistics_.messages_sent;
  statistics_.bytes_sent += bytes;
}

/// Moves what there is for that rank into its ring, as far as there is room, and at the next look
/// what is left. True if that was the end of the message under way.
COHORT_INLINE bool channel::fill_ring(int to) {
  peer& one = at(to);
  const std::uint64_t before = one.messages;
  const std::size_t longest = std::min(options_.fragment, rings_->longest());
  const bool was_sending = one.sending;
  const auto push = [&](std::span<const std::byte> fragment) {
    if (!rings_->send(to, fragment)) return false;
    count_fragment(one, fragment.size());
    return true;
  };
  bool has_room = true;
  while (has_room && !one.in_between.empty()) {
    has_room = push(one.in_between.front());
    if (has_room) one.in_between.erase(one.in_between.begin());
  }
  if (!has_room && closing_) one.in_between.clear();  // nobody may read that ring any more
  while (has_room && one.sending) {
    if (gives_up_) {
      one.fragment = {};
    } else if (one.fragment.empty() && !one.out.all_taken()) {
      one.fragment = one.out.next(longest);
    }
    if (one.fragment.empty()) {
      one.sending = false;
      --under_way_;
    } else if ((has_room = push(one.fragment))) {
      one.fragment = {};
    }
  }
  if (one.messages != before) {
    over_->engine.attend();
    wake_receiver(to);
  }
  const bool waits = one.sending || !one.in_between.empty();
  if (waits != one.waits) operations_ += waits ? 1 : -1;
  one.waits = waits;
  if (waits) over_->source.at_next_look(*this);
  return was_sending && !one.sending;
}

/// MPI has taken a fragment.
COHORT_INLINE void channel::has_left(int to) noexcept {
  wake_receiver(to);
  peer& one = at(to);
  one.sending = !one.out.all_taken() && !gives_up_;
  if (!one.sending) --under_way_;
}

COHORT_INLINE bool channel::sent(control_operation& op) {
  if (op.alone) {
    wake_receiver(op.peer);
    return false;
  }
  has_left(op.peer);
  peer& one = at(op.peer);
  if (!one.sending) {
    client_.sent(op.peer);
    return false;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  const int rc = post_fragment(op.peer, one.out.next(options_.fragment), request);
  if (rc != MPI_SUCCESS) return fail(op, rc);
  over_->source.add(request, op);
  return true;
}

COHORT_INLINE std::error_code channel::send_at_once(int to, unsigned kind,
                                                    std::span<const std::byte> message) {
  if (over_ == nullptr) return errc::closed;
  if (rings_) {
    if (message.size() >= rings_->longest()) return errc::message_too_long;
    std::vector<std::byte> fragment;
    outgoing_message::in_between(fragment, kind, message);
    at(to).in_between.push_back(std::move(fragment));
    fill_ring(to);
    return {};
  }
  auto op = std::make_unique<control_operation>(*this, to, true);
  op->alone = true;
  outgoing_message::in_between(op->held, kind, message);
  op->bytes = op->held.size();
  MPI_Request request = MPI_REQUEST_NULL;
  const int rc = post_fragment(to, op->held, request);
  if (rc != MPI_SUCCESS) return mpi::make_error(rc);
  if (!request_source::complete_already(request)) {
    ++operations_;
    over_->source.add(request, *op.release());
  }
  wake_receiver(to);
  return {};
}

// ---- failures -----------------------------------------------------------------------------------

COHORT_INLINE bool channel::fail(control_operation& op, int code) {
  op.fail(mpi::make_error(code));
  failed(op);
  return false;
}

// A cancelled receive is the end that was asked for.
COHORT_INLINE void channel::failed(control_operation& op) {
  if (op.sends && !op.alone) {
    peer& one = at(op.peer);
    if (std::exchange(one.sending, false)) --under_way_;
    one.out.lose();
  }
  if (closing_) return;
  if (!rings_) return client_.failed(op.peer < 0 ? -1 : op.peer, op.sends, op.error());
  for (std::size_t i = 0; i < from_.size() && !closing_; ++i) {  // its receive is of all
    if (from_[i] != rank_) client_.failed(from_[i], op.sends, op.error());
  }
}

COHORT_INLINE void channel::forget(control_operation& op) noexcept {
  if (std::exchange(op.over_, true)) return;
  if (!op.sends) std::erase(receives_, &op);
  --operations_;
  let_go();
}

/// The communicator, and the source, may go when MPI has nothing of this any more.
COHORT_INLINE void channel::let_go() noexcept {
  if (!closing_ || operations_ != 0 || over_ == nullptr) return;
  over_->source.forget(*this);
  over_ = nullptr;
}

}  // namespace cohort::comm
