// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of rendezvous/exchange.hpp.

#include <cohort/core/log.hpp>
#include <cohort/core/random.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/rendezvous/exchange.hpp>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

namespace cohort::meeting {

/// Of this process: random, never 0.
[[nodiscard]] COHORT_INLINE std::uint64_t process_incarnation() {
  static const std::uint64_t value = random_number() | 1U;
  return value;
}

// ---- values that are needed no more ------------------------------------------------------------

/// Values that the loop destroys, for who holds locks cannot.
template <class Any>
class exchange<Any>::dropped_values final : public progress::operation {
 public:
  explicit dropped_values(packet_list&& values) noexcept
      : operation(&run), values_(std::move(values)) {}

 private:
  static void run(operation* base, action) { delete static_cast<dropped_values*>(base); }
  packet_list values_;
};

/// The node's lock, taken inside a look.
template <class Any>
class exchange<Any>::look_lock {
 public:
  explicit look_lock(exchange& owner) : owner_(owner), hold_(owner.mutex_) {}
  look_lock(const look_lock&) = delete;
  look_lock& operator=(const look_lock&) = delete;
  ~look_lock() {
    if (owner_.node_.dropped().empty()) return;
    try {
      owner_.engine_.complete(new dropped_values(std::move(owner_.node_.dropped())));
    } catch (const std::bad_alloc&) {
      return;  // the next call destroys them
    }
  }

 private:
  exchange& owner_;
  const lock hold_;
};

// ---- operations inside MPI ---------------------------------------------------------------------

/// A message on its way, or the receive for the next one. It frees itself when the engine delivers
/// it.
template <class Any>
class exchange<Any>::control_operation final : public comm::request_operation {
 public:
  control_operation(exchange& owner, int to) noexcept
      : request_operation(&run), owner_(&owner), to_(to) {
    advance_ = &advanced;
    advances_failed_ = true;
    cancellable = to < 0;
    stalls = to < 0;           // nobody waits for a send
    waits_for_turn_ = to < 0;  // may go on without a request, until the next look posts one
    verb = to < 0 ? "rendezvous_recv" : "rendezvous_send";
    rank = owner.rank();
    peer = to;
  }
  static void* operator new(std::size_t bytes) { return progress::pool::allocate(bytes); }
  static void operator delete(void* block) noexcept {
    progress::pool::deallocate(block, sizeof(control_operation));
  }

 private:
  friend class exchange;
  static bool advanced(request_operation* base) {
    auto* self = static_cast<control_operation*>(base);
    exchange& owner = *self->owner_;
    const look_lock hold(owner);
    bool goes_on = false;
    if (self->failed()) {
      owner.control_failed(*self);
    } else {
      goes_on = self->to_ < 0 ? owner.received(*self) : owner.sent(*self);
    }
    if (goes_on) return true;
    if (self->to_ < 0) owner.receive_ = nullptr;
    --owner.operations_;
    owner.advance_closing();
    return false;
  }
  static void run(operation* base, action) { delete static_cast<control_operation*>(base); }

  exchange* owner_;
  int to_;  // -1: the receive
};

/// A large value, in chunks.
template <class Any>
class exchange<Any>::transfer_operation final : public comm::request_operation {
 public:
  transfer_operation(exchange& owner, const transfer& what) noexcept
      : request_operation(&run), owner_(owner), what_(what) {
    advance_ = &advanced;
    advances_failed_ = true;
    verb = what.incoming ? "rendezvous_take" : "rendezvous_give";
    stalls = what.incoming;
    rank = owner.rank();
    peer = what.peer;
    bytes = what.size;
  }
  [[nodiscard]] bool is_receive(int from, std::uint64_t request) const noexcept {
    return what_.incoming && what_.peer == from && what_.id == request;
  }
  static void* operator new(std::size_t bytes) { return progress::pool::allocate(bytes); }
  static void operator delete(void* block) noexcept {
    progress::pool::deallocate(block, sizeof(transfer_operation));
  }
  /// Posts all chunks; messages of one pair and tag keep their order.
  int post(MPI_Comm comm) {
    for (std::uint64_t at = 0; at < what_.size; at += owner_.options_.chunk_bytes) {
      const auto count =
          static_cast<MPI_Count>(std::min(owner_.options_.chunk_bytes, what_.size - at));
      MPI_Request request = MPI_REQUEST_NULL;
      const int rc = what_.incoming ? mpi::post::irecv(what_.into + at, count, MPI_BYTE, what_.peer,
                                                       what_.tag, comm, &request)
                                    : mpi::post::isend(what_.from + at, count, MPI_BYTE, what_.peer,
                                                       what_.tag, comm, &request);
      if (rc != MPI_SUCCESS) return rc;
      owner_.source_.load()->add(request, *this);
    }
    return MPI_SUCCESS;
  }

 private:
  static bool advanced(request_operation* base) {
    auto* self = static_cast<transfer_operation*>(base);
    exchange& owner = self->owner_;
    const look_lock hold(owner);
    std::erase(owner.transfers_, self);
    --owner.operations_;
    owner.node_.transferred(self->what_, self->error());
    owner.flush(false);
    owner.stay_awake();
    owner.advance_closing();
    return false;
  }
  static void run(operation* base, action) { delete static_cast<transfer_operation*>(base); }

  exchange& owner_;
  transfer what_;
};

/// Makes the two communicators, then tells all ranks of the incarnations. Stages of one operation
/// inside the look, as those of a coordinator are: a context that goes away can see it through.
template <class Any>
class exchange<Any>::opening final : public comm::request_operation {
 public:
  explicit opening(exchange& owner) : request_operation(&run), owner_(owner) {
    advance_ = &advanced;
    advances_failed_ = true;
    verb = "rendezvous";
    rank = owner.rank();
  }
  void begin() {
    creation_ = std::make_unique<comm::creation>(*owner_.world_.state(), *this);
    creation_->begin();
  }

 private:
  static bool advanced(request_operation* base) {
    auto* self = static_cast<opening*>(base);
    exchange& owner = self->owner_;
    const look_lock hold(owner);
    bool goes_on = false;
    try {
      goes_on = self->step();
    } catch (...) {
      owner.break_down(std::current_exception());
    }
    if (goes_on) return true;
    --owner.operations_;
    owner.advance_closing();
    return false;
  }
  static void run(operation* base, action) { delete static_cast<opening*>(base); }
  bool step() {
    const bool goes_on = creation_ && creation_->goes_on([this](mpi::comm made) {
      mpi::comm second = made.dup();
      made_ = communicator::adopt(owner_.world_, std::move(made), std::move(second));
    });
    if (goes_on) return true;
    if (failed()) throw std::system_error(error(), "rendezvous");
    if (!std::exchange(creation_, nullptr)) {
      owner_.opened(std::move(made_), std::move(incarnations_));
      return false;
    }
    incarnations_.resize(static_cast<std::size_t>(made_.size()));
    MPI_Request request = MPI_REQUEST_NULL;
    mpi::check(mpi::post::iallgather(&owner_.incarnation_, 1, MPI_UINT64_T, incarnations_.data(), 1,
                                     MPI_UINT64_T, made_.native(), &request),
               "MPI_Iallgather");
    owner_.source_.load()->add(request, *this);
    return true;
  }

  exchange& owner_;
  std::unique_ptr<comm::creation> creation_;  // until it has been made
  communicator made_;
  std::vector<std::uint64_t> incarnations_;
};

/// The rounds of closing. 1: all ranks have closed, so no more requests are made. 2: all requests
/// have been answered and all transfers done. 3: how many messages were sent to each rank; when
/// they have come, nothing is on its way.
template <class Any>
class exchange<Any>::closing final : public comm::request_operation {
 public:
  explicit closing(exchange& owner) : request_operation(&run), owner_(owner) {
    advance_ = &advanced;
    advances_failed_ = true;
    verb = "rendezvous_close";
    rank = owner.rank();
  }
  void begin(int round) {
    MPI_Request request = MPI_REQUEST_NULL;
    const MPI_Comm comm = owner_.control_.state()->exchange.native();
    if (round < 3) {
      mpi::check(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
    } else {
      mpi::check(
          mpi::post::ireduce_scatter_block(owner_.messages_sent_.data(), &owner_.messages_expected_,
                                           1, MPI_UINT64_T, MPI_SUM, comm, &request),
          "MPI_Ireduce_scatter_block");
    }
    owner_.source_.load()->add(request, *this);
  }

 private:
  static bool advanced(request_operation* base) {
    auto* self = static_cast<closing*>(base);
    exchange& owner = self->owner_;
    const look_lock hold(owner);
    --owner.operations_;
    owner.closing_ = nullptr;
    owner.round_runs_ = false;
    if (self->failed()) {
      owner.break_down(
          std::make_exception_ptr(std::system_error(self->error(), "rendezvous: closing")));
    }
    owner.advance_closing();
    return false;
  }
  static void run(operation* base, action) { delete static_cast<closing*>(base); }

  exchange& owner_;
};

// ---- beginning ---------------------------------------------------------------------------------

template <class Any>
exchange<Any>::exchange(progress::engine& engine, const rendezvous_options& options)
    : endpoint(engine), options_(options), node_(options.node) {
  incarnation_ = process_incarnation();
  constexpr int most_tags = 32767;  // every MPI has so many
  if (options.chunk_bytes == 0 || options.node.tags < 1 || options.node.tags > most_tags) {
    throw error(errc::invalid_argument,
                "rendezvous: chunk is at least 1, transfers are 1 to 32767");
  }
}

template <class Any>
exchange<Any>::~exchange() {
  if (receive_waits_) delete receive_;
  comm::request_source* const source = source_.load();
  if (source == nullptr || closed_.load()) return;  // closed: it may be gone
  const comm::request_source::guard hold(*source);
  source->forget(*this);
}

template <class Any>
std::shared_ptr<exchange<Any>> exchange<Any>::make(progress::engine& engine,
                                                   const rendezvous_options& options) {
  auto one = std::make_shared<exchange>(engine, options);
  asio::use_service<progress::kept_until_closed<endpoint>>(engine.context()).add(one);
  return one;
}

template <class Any>
handle_ptr open_endpoint(progress::engine& engine, const rendezvous_options& options) {
  return std::make_shared<endpoint_handle>(exchange<Any>::make(engine, options));
}

template <class Any>
void exchange<Any>::initialize(const communicator& world) {
  if (!world) throw error(errc::invalid_communicator, "rendezvous");
  if (&world.state()->engine != &engine_) {
    throw error(errc::invalid_communicator, "rendezvous: a communicator of another context");
  }
  comm::request_source& source = world.state()->source;
  if (const errc bad = source.usable(); bad != errc{}) throw error(bad, "rendezvous");
  {
    const comm::request_source::guard guarded(source);
    const look_lock hold(*this);
    if (node_.closing()) throw error(errc::closed, "rendezvous");
    if (node_.is_open()) {
      int relation = MPI_UNEQUAL;
      mpi::check(MPI_Comm_compare(world.native(), world_.native(), &relation), "MPI_Comm_compare");
      if (relation == MPI_CONGRUENT || relation == MPI_IDENT) return;
      throw error(errc::invalid_communicator,
                  "rendezvous: it is initialised with another communicator");
    }
    world_ = world;
    source_.store(&source);
    source.watch(*this);
    rank_.store(world.rank(), std::memory_order_release);
    auto* steps = new opening(*this);
    ++operations_;
    steps->begin();
    node_.open(world.rank(), world.size(), incarnation_);
  }
  engine_.started();
}

template <class Any>
void exchange<Any>::opened(communicator made, std::vector<std::uint64_t> incarnations) {
  control_ = std::move(made);
  node_.know(std::move(incarnations));
  const auto ranks = static_cast<std::size_t>(control_.size());
  edges_.resize(ranks);
  messages_sent_.resize(ranks);
  in_.resize(message_bytes);
  if (!control_.state()->bells) source_.load()->forbid_parking();
  ready_ = true;
  post_receive();
  flush(true);
  stay_awake();
}

template <class Any>
std::uint64_t exchange<Any>::incarnation(int rank) {
  const lock hold(mutex_);
  if (!node_.is_open()) throw error(errc::not_initialised, "rendezvous: incarnation");
  if (rank < 0 || rank >= node_.size()) throw error(errc::bad_rank, "rendezvous: incarnation");
  return node_.incarnation(rank);
}

// ---- messages ----------------------------------------------------------------------------------
//
// A fragment is one byte, 1 if the message goes on in the next one, and bytes of the message.

template <class Any>
void exchange<Any>::post_receive() {
  receive_ = new control_operation(*this, -1);
  ++operations_;
  source_.load()->mark_idle(*receive_);
  if (!repost_receive(*receive_)) drop_receive();
}

/// False, and the rendezvous is broken, if MPI has refused it.
template <class Any>
bool exchange<Any>::repost_receive(control_operation& op) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int rc = mpi::post::irecv(in_.data(), static_cast<MPI_Count>(in_.size()), MPI_BYTE,
                                  MPI_ANY_SOURCE, control_tag, control_.native(), &request);
  if (rc == MPI_SUCCESS) {
    source_.load()->begin_wait(op);  // a message has come
    source_.load()->add(request, op);
    return true;
  }
  op.fail(mpi::make_error(rc));
  control_failed(op);
  return false;
}

/// One that MPI does not have.
template <class Any>
void exchange<Any>::drop_receive() {
  receive_waits_ = false;
  --operations_;
  delete std::exchange(receive_, nullptr);
}

template <class Any>
bool exchange<Any>::received(control_operation& op) {
  const std::size_t ended_before = ended_;
  int count = 0;
  MPI_Get_count(&op.status, MPI_BYTE, &count);
  ++messages_received_;
  try {
    take(op.status.MPI_SOURCE,
         std::span<const std::byte>(in_).first(static_cast<std::size_t>(count)));
  } catch (...) {
    break_down(std::current_exception());
  }
  flush(false);
  advance_closing();
  if (releasing_) return false;
  if (ended_ != ended_before) {
    // What those have to say leaves first.
    receive_waits_ = true;
    look_soon();
  } else if (!repost_receive(op)) {
    return false;
  }
  stay_awake();
  return true;
}

template <class Any>
void exchange<Any>::take(int from, std::span<const std::byte> fragment) {
  if (fragment.empty()) {
    node_.refuse_message(from, "a fragment without a byte");
    return;
  }
  edge& one = edges_[static_cast<std::size_t>(from)];
  const auto part = fragment.subspan(1);
  const bool goes_on = fragment[0] != std::byte{0};
  if (!goes_on && one.assembly.empty()) return take_message(from, part);
  one.assembly.insert(one.assembly.end(), part.begin(), part.end());
  if (goes_on) return;
  const std::vector<std::byte> whole = std::exchange(one.assembly, {});
  take_message(from, whole);
}

template <class Any>
void exchange<Any>::take_message(int from, std::span<const std::byte> message) {
  if (node_.is_lost(from)) return;
  node_.receive(from, message);
  if (!node_.is_lost(from)) return;
  log::write(log::level::error, "rank " + std::to_string(rank()) + ": rendezvous: rank " +
                                    std::to_string(from) + " is lost: " + node_.why_lost(from));
  for (const auto& [peer, request] : node_.take_given_up()) {
    for (transfer_operation* const one : transfers_) {
      if (one->is_receive(peer, request)) source_.load()->cancel(*one);
    }
  }
}

/// Sends what is to be said; inside a look acknowledgements alone wait for the next one, to travel
/// with what the handlers of this one have to say.
template <class Any>
void exchange<Any>::flush(bool all) {
  if (!ready_ || broken_) return;
  if (node_.has_transfers()) start_transfers();
  std::vector<int>& speaking = node_.speaking();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < speaking.size(); ++i) {
    const int to = speaking[i];
    if (!all && !node_.has_urgent(to)) {
      speaking[kept++] = to;
    } else if (!edges_[static_cast<std::size_t>(to)].sending) {
      send(to);
    }
  }
  speaking.resize(kept);
  if (kept != 0) look_soon();
}

template <class Any>
void exchange<Any>::look_soon() {
  if (look_wanted_.load(std::memory_order_relaxed) || look_wanted_.exchange(true)) return;
  source_.load()->at_next_look(*this);
}

template <class Any>
void exchange<Any>::send(int to) {
  edge& one = edges_[static_cast<std::size_t>(to)];
  one.out.assign(1, std::byte{0});
  if (!node_.take_message(to, one.out)) return;
  one.sent = 0;
  one.sending = true;
  post_out(to);
}

template <class Any>
void exchange<Any>::post_out(int to) {
  edge& one = edges_[static_cast<std::size_t>(to)];
  MPI_Request request = MPI_REQUEST_NULL;
  do {
    if (const int rc = post_fragment(to, request); rc != MPI_SUCCESS) {
      one.sending = false;
      log::write(log::level::error, "rank " + std::to_string(rank()) + ": rendezvous: rank " +
                                        std::to_string(to) +
                                        " is lost: " + mpi::make_error(rc).message());
      return node_.lose(to, mpi::make_error(rc).message());
    }
    // Short messages have left when MPI returns: they need not wait for a look.
    if (!comm::request_source::complete_already(request)) {
      auto* op = new control_operation(*this, to);
      ++operations_;
      source_.load()->add(request, *op);
      wake_receiver(to);  // for without it a longer message does not leave
      return;
    }
    wake_receiver(to);
    one.sending = one.sent < one.out.size();
  } while (one.sending);
}

// The byte before a fragment is overwritten; it has been sent with the fragment before.
template <class Any>
int exchange<Any>::post_fragment(int to, MPI_Request& request) {
  edge& one = edges_[static_cast<std::size_t>(to)];
  const std::size_t left = one.out.size() - one.sent;
  const std::size_t bytes = std::min(left, message_bytes);
  one.out[one.sent] = bytes < left ? std::byte{1} : std::byte{0};
  const int rc = mpi::post::isend(one.out.data() + one.sent, static_cast<MPI_Count>(bytes),
                                  MPI_BYTE, to, control_tag, control_.native(), &request);
  if (rc != MPI_SUCCESS) return rc;
  one.sent += bytes < left ? bytes - 1 : bytes;
  ++messages_sent_[static_cast<std::size_t>(to)];
  return rc;
}

template <class Any>
void exchange<Any>::wake_receiver(int to) {
  if (const auto& bells = control_.state()->bells) bells->announce(control_.state()->bell_rank(to));
}

template <class Any>
bool exchange<Any>::sent(control_operation& op) {
  edge& one = edges_[static_cast<std::size_t>(op.to_)];
  wake_receiver(op.to_);
  one.sending = one.sent < one.out.size();
  if (one.sending) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = post_fragment(op.to_, request);
    if (rc == MPI_SUCCESS) {
      source_.load()->add(request, op);
      return true;
    }
    op.fail(mpi::make_error(rc));
    control_failed(op);
    return false;
  }
  if (!broken_ && node_.has_message(op.to_)) send(op.to_);
  return false;
}

template <class Any>
void exchange<Any>::control_failed(control_operation& op) {
  if (op.to_ >= 0) {
    edges_[static_cast<std::size_t>(op.to_)].sending = false;
    node_.lose(op.to_, op.error().message());
    return;
  }
  if (releasing_ || closed_.load()) return;
  break_down(std::make_exception_ptr(std::system_error(op.error(), "rendezvous: a receive")));
}

template <class Any>
void exchange<Any>::start_transfers() {
  for (const transfer& one : node_.take_transfers()) {
    auto* op = new transfer_operation(*this, one);
    ++operations_;
    transfers_.push_back(op);
    const int rc = op->post(control_.state()->exchange.native());
    if (rc == MPI_SUCCESS) continue;
    op->fail(mpi::make_error(rc));
    if (comm::request_source::pending(*op)) continue;  // the chunks that were posted come first
    --operations_;
    std::erase(transfers_, op);
    node_.transferred(one, op->error());
    delete op;
  }
}

// ---- calls -------------------------------------------------------------------------------------

template <class Any>
void exchange<Any>::touch() {
  comm::request_source* const source = source_.load();
  // Relaxed: the look clears the flag before it takes the mutex that the call has just held.
  if (source == nullptr || closed_.load() || look_wanted_.load(std::memory_order_relaxed)) return;
  if (look_wanted_.exchange(true, std::memory_order_relaxed)) return;
  {
    const comm::request_source::guard hold(*source);
    if (closed_.load()) return;  // since then; the source has forgotten this hook
    source->at_next_look(*this);
  }
  engine_.started();
}

template <class Any>
std::size_t exchange<Any>::at_look() {
  look_wanted_.store(false, std::memory_order_relaxed);
  const std::size_t before = ended_;
  const look_lock hold(*this);
  if (closed_.load()) return 0;
  flush(true);
  if (receive_waits_) {
    receive_waits_ = false;
    if (!repost_receive(*receive_)) drop_receive();
  }
  stay_awake();
  advance_closing();
  return ended_ - before;
}

/// While this rank waits for others its engine looks for their messages; otherwise it may sleep
/// until the doorbell rings.
template <class Any>
void exchange<Any>::stay_awake() {
  if (receive_ == nullptr) return;
  const bool waits =
      node_.waits() || node_.busy() || !transfers_.empty() || (left_ && !leave_expired_);
  source_.load()->set_idle(*receive_, !waits);
}

template <class Any>
void exchange<Any>::at_tick(clock::time_point now) {
  const look_lock hold(*this);
  if (closed_.load()) return;
  for (std::size_t to = 0; to < edges_.size(); ++to) {
    if (edges_[to].sending) wake_receiver(static_cast<int>(to));
  }
  if (options_.ttl > std::chrono::nanoseconds::zero()) {
    sweep_locked(now);
    flush(true);
  }
  if (left_ && now > leave_until_ && !leave_expired_ && closers_.empty()) {
    leave_expired_ = true;
    log::write(log::level::error,
               "rank " + std::to_string(rank()) +
                   ": rendezvous: the other ranks have not closed in time; this one waits no more");
    if (closing_ != nullptr) source_.load()->set_idle(*closing_, true);
    stay_awake();
  }
}

template <class Any>
step_ptr exchange<Any>::step(step_id id) {
  step_ptr one;
  call([&] {
    if (options_.ttl > std::chrono::nanoseconds::zero()) sweep_locked(clock::now());
    one = node_.step(id);
    one->leases.fetch_add(1);
    one->last_use.store(clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  });
  return one;
}

template <class Any>
void exchange<Any>::send(step_state& step, const rendezvous_key& key, packet_ptr value) {
  used(step);
  if (is_own(key)) {
    step.local.send(key, std::move(value));
    return;
  }
  if (comm::request_source* const source = source_.load()) {
    if (const errc bad = source->usable(); bad != errc{}) throw error(bad, "rendezvous: send");
  }
  call([&] {
    if (!node_.is_open()) {
      if (const auto why = step.local.ended()) std::rethrow_exception(why);
      step.deferred.emplace_back(owned_key(key), std::move(value));
      return;
    }
    if (key.source_incarnation != 0 && key.source == node_.rank() &&
        key.source_incarnation != incarnation_) {
      throw error(errc::stale_incarnation, "'" + to_string(key) + "': send");
    }
    node_.send(step, key, value);
  });
}

template <class Any>
void exchange<Any>::receive(step_state& step, const rendezvous_key& key, receiver& one) {
  used(step);
  if (is_own(key)) {
    const step_ptr keep = step.shared_from_this();
    step.local.receive(key, one);
    if (step.drain_waits.load()) call([&] { node_.check_drained(step); });
    return;
  }
  comm::request_source* const source = source_.load();
  if (source != nullptr && key.source != rank()) {
    if (const errc bad = source->usable(); bad != errc{}) throw error(bad, "rendezvous: recv");
  }
  step_ptr keep;  // not destroyed with the lock
  call([&] {
    if (node_.look_up(step.id) != &step) keep = step.shared_from_this();
    node_.receive(step, key, one);
  });
}

template <class Any>
void exchange<Any>::cancel(step_state& step, receiver& one, const std::exception_ptr& why) {
  call([&] { node_.cancel(step, one, why); });
}

template <class Any>
void exchange<Any>::drain(step_state& step, receiver& one) {
  call([&] { node_.drain(step, one); });
}

template <class Any>
void exchange<Any>::stop_draining(step_state& step, receiver& one, const std::exception_ptr& why) {
  call([&] { node_.stop_draining(step, one, why); });
}

template <class Any>
void exchange<Any>::release(step_state& step) noexcept {
  used(step);
  step.leases.fetch_sub(1);
}

template <class Any>
std::vector<waiting_key> exchange<Any>::waiting(const step_state& step) {
  return step.local.list();
}

template <class Any>
void exchange<Any>::abort(step_state& step, const std::exception_ptr& why) {
  call([&] { node_.abort(step, why); });
}

template <class Any>
void exchange<Any>::cleanup(step_id id) {
  call([&] { node_.cleanup(id); });
}

template <class Any>
void exchange<Any>::cleanup_all() {
  call([&] {
    for (const step_id id : node_.steps()) node_.cleanup(id);
  });
}

template <class Any>
void exchange<Any>::sweep() {
  call([&] {
    last_sweep_ = {};
    sweep_locked(clock::now());
  });
}

template <class Any>
std::vector<step_id> exchange<Any>::steps() {
  const lock hold(mutex_);
  return node_.steps();
}

/// Cleans up what has not been used for longer than `step_ttl`, and says which values that loses.
template <class Any>
void exchange<Any>::sweep_locked(clock::time_point now) {
  if (options_.ttl <= std::chrono::nanoseconds::zero() || now - last_sweep_ < options_.ttl / 4) {
    return;
  }
  last_sweep_ = now;
  for (const step_id id : node_.steps()) {
    const step_ptr one = node_.find(id);
    const clock::time_point used{clock::duration(one->last_use.load(std::memory_order_relaxed))};
    if (one->last_use.load(std::memory_order_relaxed) == 0) {  // made by another rank's message
      one->last_use.store(now.time_since_epoch().count(), std::memory_order_relaxed);
      continue;
    }
    if (one->leases.load() != 0 || now - used <= options_.ttl || !one->drains.empty()) continue;
    bool is_waited_in = false;
    for (const waiting_key& each : one->local.list()) {
      is_waited_in = is_waited_in || each.receives != 0;
    }
    for (const auto& [key, channel] : one->out) {
      is_waited_in = is_waited_in || !channel.requests.empty();
    }
    if (is_waited_in) continue;
    report(node::leaks_of(*one), "has passed its time to live with values that nobody received");
    node_.cleanup(id);
  }
}

template <class Any>
void exchange<Any>::report(const std::vector<leaked_value>& leaks, const char* what) const {
  if (leaks.empty()) return;
  constexpr std::size_t most = 20;
  std::string text = "rank " + std::to_string(rank()) + ": rendezvous " + what + ":";
  for (std::size_t i = 0; i < std::min(leaks.size(), most); ++i) {
    text += "\n  step " + std::to_string(leaks[i].step);
    text += ", '" + to_string(leaks[i].key) + "': ";
    text += std::to_string(leaks[i].values) + " of " + std::to_string(leaks[i].bytes) + " bytes";
  }
  if (leaks.size() > most) text += "\n  and " + std::to_string(leaks.size() - most) + " keys more";
  log::write(log::level::warning, text);
}

// ---- the end -----------------------------------------------------------------------------------

template <class Any>
void exchange<Any>::begin_closing() {
  if (std::exchange(left_, true)) return;
  leave_until_ = clock::now() + options_.leave_time;
  if (!node_.is_open()) {
    std::string waiting;
    for (const step_id id : node_.steps()) {
      for (const waiting_key& one : node_.find(id)->local.list()) {
        if (one.receives == 0) continue;
        waiting += "\n  step " + std::to_string(id);
        waiting += ", '" + to_string(one.key) + "'";
      }
    }
    if (!waiting.empty()) {
      log::write(log::level::warning,
                 "a rendezvous ends that was never initialised; waiting were:" + waiting);
    }
    leaks_ = node_.finish();
  }
  node_.close();
  if (!node_.is_open()) finish_closing();
}

/// Goes on with the rounds, as far as this rank has got.
template <class Any>
void exchange<Any>::advance_closing() {
  if (!left_ || closed_.load()) return;
  if (broken_) return check_released();
  if (!ready_ || round_runs_) return;
  const auto is_quiet = [&] {
    if (node_.busy() || !transfers_.empty() || !node_.speaking().empty()) return false;
    return std::none_of(edges_.begin(), edges_.end(), [](const edge& one) { return one.sending; });
  };
  if (round_ == 1 && !is_quiet()) return;
  if (round_ == 2) {
    node_.fall_silent();
    if (!is_quiet()) return;
  }
  if (round_ == 3) {
    if (messages_received_ != messages_expected_ || !is_quiet()) return;
    return check_released();
  }
  ++round_;
  round_runs_ = true;
  closing_ = new closing(*this);
  ++operations_;
  try {
    closing_->begin(round_);
  } catch (...) {
    --operations_;
    delete std::exchange(closing_, nullptr);
    round_runs_ = false;
    break_down(std::current_exception());
  }
}

template <class Any>
void exchange<Any>::check_released() {
  if (!std::exchange(releasing_, true) && receive_ != nullptr) {
    source_.load()->set_idle(*receive_, false);
    source_.load()->cancel(*receive_);
  }
  if (receive_waits_) drop_receive();
  if (operations_ == 0) finish_closing();
}

template <class Any>
void exchange<Any>::finish_closing() {
  if (closed_.load()) return;
  if (node_.is_open() && !broken_) {
    leaks_ = node_.finish();
    report(leaks_, "closes with values that nobody has received");
  }
  closed_.store(true);
  if (comm::request_source* const source = source_.load()) source->forget(*this);
  // A rank that breaks down alone cannot free what all free together.
  if (broken_ && control_) control_.state()->keep();
  control_ = communicator();
  world_ = communicator();
  end_closers(broken_);
}

template <class Any>
void exchange<Any>::end_closers(const std::exception_ptr& why) {
  if (why) {
    closers_.end_all(why);
  } else {
    closers_.end_all();
  }
}

template <class Any>
void exchange<Any>::break_down(const std::exception_ptr& why) {
  if (broken_) return;
  broken_ = why;
  node_.break_down(why);
  for (edge& one : edges_) one.assembly.clear();
}

template <class Any>
void exchange<Any>::wait_closed(receiver& one) {
  call([&] {
    begin_closing();
    if (closed_.load()) {
      if (broken_) one.fail(broken_);
      one.end();
    } else {
      closers_.push(one);
    }
  });
}

template <class Any>
void exchange<Any>::stop_waiting(receiver& one, const std::exception_ptr& why) {
  const lock hold(mutex_);
  if (!closers_.contains(one)) return;
  closers_.remove(one);
  one.fail(why);
  one.end();
}

template <class Any>
std::vector<leaked_value> exchange<Any>::leaks() {
  const lock hold(mutex_);
  return leaks_;
}

/// For destructors. Inside the loop the rank leaves in the background.
template <class Any>
void exchange<Any>::leave_in_place() noexcept try {
  if (abandoned_ || closed_.load()) return;
  call([this] { begin_closing(); });
  if (closed_.load() || engine_.get_executor().running_in_this_thread() ||
      !engine_.context().stopped()) {
    return;
  }
  engine_.drive_until(
      [this] { return closed_.load(); },
      std::min<std::chrono::nanoseconds>(engine_.drain_bound(), options_.leave_time));
} catch (const std::exception& problem) {
  log::write(log::level::error, std::string("rendezvous: leaving: ") + problem.what());
}

template <class Any>
void exchange<Any>::abandon() {
  call([this] { begin_closing(); });
  abandoned_ = true;
}

template <class Any>
void exchange<Any>::drive() {
  if (engine_.drive_until(
          [this] { return closed_.load(); },
          std::min<std::chrono::nanoseconds>(engine_.drain_bound(), options_.leave_time))) {
    return;
  }
  // The others have not come: MPI keeps what it works on, and freeing is collective.
  progress::left_to_mpi().add(this->shared_from_this());
  const lock hold(mutex_);
  if (control_) control_.state()->keep();
}

}  // namespace cohort::meeting
