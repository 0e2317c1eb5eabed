// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of rendezvous/exchange.hpp.

#include <cohort/comm/joint.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/option_mismatch.hpp>
#include <cohort/core/random.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/post.hpp>
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
      if (!what_.incoming) ++owner_.chunks_;
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
    stalls = false;  // who awaits it is named
    rank = owner.rank();
  }
  void begin(int round) {
    MPI_Request request = MPI_REQUEST_NULL;
    const MPI_Comm comm = owner_.control_.state()->exchange.native();
    if (round < 3) {
      mpi::check(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
    } else {
      for (int to = 0; to < owner_.control_.size(); ++to) {
        sent_.push_back(owner_.channel_.messages_to(to));
      }
      mpi::check(mpi::post::ireduce_scatter_block(sent_.data(), &owner_.messages_expected_, 1,
                                                  MPI_UINT64_T, MPI_SUM, comm, &request),
                 "MPI_Ireduce_scatter_block");
    }
    owner_.source_.load()->add(request, *this);
  }
  /// Other ranks will not join. With the guard.
  static void leave_to_mpi(exchange& owner) {
    owner.source_.load()->leave_to_mpi(&advanced, [&](request_operation& op) {
      return &static_cast<closing&>(op).owner_ == &owner;
    });
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
  std::vector<std::uint64_t> sent_;  // messages to each rank
};

// ---- beginning ---------------------------------------------------------------------------------

inline constexpr const char* option_ranges = "chunk is at least 1, transfers are 1 to 32767";

template <class Any>
exchange<Any>::exchange(progress::engine& engine, const rendezvous_options& options)
    : endpoint(engine),
      options_(options),
      node_(options.node),
      channel_(*this, {.send_verb = "rendezvous_send", .receive_verb = "rendezvous_recv"}) {
  incarnation_ = process_incarnation();
  constexpr int most_tags = 32767;  // every MPI has so many
  if (options.chunk_bytes == 0 || options.node.tags < 1 || options.node.tags > most_tags) {
    throw error(errc::invalid_argument, std::string("rendezvous: ") + option_ranges);
  }
}

template <class Any>
exchange<Any>::~exchange() {
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
handle_ptr open_endpoint(progress::engine& engine, const rendezvous_options& options,
                         const communicator& world) {
  std::shared_ptr<exchange<Any>> one;
  std::exception_ptr refused;
  try {
    one = exchange<Any>::make(engine, options);
  } catch (const error&) {  // the others wait for this rank: it opens one to tell them
    if (!world) throw;
    refused = std::current_exception();
    one = exchange<Any>::make(engine, {});
    one->refuse();
  }
  auto handle = std::make_shared<endpoint_handle>(one);
  if (world) one->initialize(world);
  if (refused) std::rethrow_exception(refused);
  return handle;
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
    auto opening = open_with_others();
    {
      const look_lock hold(*this);
      if (node_.closing()) throw error(errc::closed, "rendezvous");
      if (node_.is_open()) {
        int relation = MPI_UNEQUAL;
        mpi::check(MPI_Comm_compare(world.native(), world_.native(), &relation),
                   "MPI_Comm_compare");
        if (relation == MPI_CONGRUENT || relation == MPI_IDENT) return;
        throw error(errc::invalid_communicator,
                    "rendezvous: it is initialised with another communicator");
      }
      world_ = world;
      source_.store(&source);
      source.watch(*this);
      rank_.store(world.rank(), std::memory_order_release);
      node_.open(world.rank(), world.size(), incarnation_);
      ++operations_;  // what another thread closes now waits for it
    }
    progress::begin_look_task(std::move(opening), {.verb = "rendezvous"},
                              [this](const std::exception_ptr& why) {
                                const comm::request_source::guard held(*source_.load());
                                const look_lock hold(*this);
                                if (why) break_down(why);
                                --operations_;
                                advance_closing();
                              });
  }
  engine_.started();
}

/// Makes the two communicators, then tells all ranks of the incarnations and compares what must be
/// equal.
template <class Any>
progress::look_task<> exchange<Any>::open_with_others() {
  communicator made;
  auto making = comm::joint::create(world_, [&](mpi::comm fresh) {
    mpi::comm second = fresh.dup();
    made = communicator::adopt(world_, std::move(fresh), std::move(second));
  });
  co_await making;
  const facts own{incarnation_, refuses_ ? 0 : options_.chunk_bytes};
  std::vector<facts> all(static_cast<std::size_t>(made.size()));
  auto telling = comm::joint::all_gather(made, own, all);
  co_await telling;
  const look_lock hold(*this);
  opened(std::move(made), all);
}

/// What ranks do not agree on, null if there is nothing.
template <class Any>
std::exception_ptr exchange<Any>::differing(const std::vector<facts>& all) const {
  std::vector<std::uint64_t> chunks;
  rank_set refusing;
  for (const facts& each : all) {
    if (each.chunk == 0) refusing.insert(static_cast<int>(chunks.size()));
    chunks.push_back(each.chunk);
  }
  if (!refusing.empty()) {
    return std::make_exception_ptr(
        refused_options(rank(), "rendezvous", {{option_ranges, refusing}}));
  }
  if (std::count(chunks.begin(), chunks.end(), chunks[0]) == world_.size()) return nullptr;
  return std::make_exception_ptr(
      differing_options(rank(), "rendezvous", {"chunk"}, chunks,
                        [](const auto&, auto chunk) { return std::to_string(chunk); }));
}

template <class Any>
void exchange<Any>::opened(communicator made, const std::vector<facts>& all) {
  if (const std::exception_ptr why = differing(all)) return break_down(why);
  control_ = std::move(made);
  std::vector<std::uint64_t> incarnations;
  for (const facts& each : all) incarnations.push_back(each.incarnation);
  node_.know(std::move(incarnations));
  channel_.open(control_);
  ready_ = true;
  may_stall_ = stalls_.is_on();
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

template <class Any>
void exchange<Any>::received(int from, unsigned, std::span<const std::byte> message) {
  const look_lock hold(*this);
  const std::size_t ended_before = ended_;
  try {
    if (!node_.is_lost(from)) {
      node_.receive(from, message);
      if (node_.is_lost(from)) has_lost(from);
    }
  } catch (...) {
    break_down(std::current_exception());
  }
  flush(false);
  advance_closing();
  if (ended_ != ended_before) {  // what those have to say leaves first
    channel_.pause();
    look_soon();
  }
  stay_awake();
}

template <class Any>
void exchange<Any>::malformed(int from, const char* what) {
  const look_lock hold(*this);
  if (!node_.is_lost(from) && !broken_) {
    node_.refuse_message(from, what);
    has_lost(from);
  }
  flush(false);
  advance_closing();
  stay_awake();
}

/// MPI_Finalize waits for all ranks; from now on it has a bound.
template <class Any>
void exchange<Any>::miss() {
  ++missed_;
  process::missing.fetch_add(1);
}

template <class Any>
void exchange<Any>::has_lost(int peer) {
  log::write(log::level::error, "rank " + std::to_string(rank()) + ": rendezvous: rank " +
                                    std::to_string(peer) + " is lost: " + node_.why_lost(peer));
  miss();
  for (const auto& [from, request] : node_.take_given_up()) {
    for (transfer_operation* const one : transfers_) {
      if (one->is_receive(from, request)) source_.load()->cancel(*one);
    }
  }
}

/// Sends what is to be said; inside a look acknowledgements alone wait for the next one, to travel
/// with what the handlers of this one have to say.
template <class Any>
void exchange<Any>::flush(bool all) {
  if (!ready_) return;
  if (node_.has_transfers()) start_transfers();
  std::vector<int>& speaking = node_.speaking();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < speaking.size(); ++i) {
    const int to = speaking[i];
    if (!all && !node_.has_urgent(to)) {
      speaking[kept++] = to;
    } else if (!channel_.sending(to)) {
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
  if (!node_.take_message(to, channel_.message(to))) return;
  if (const std::error_code why = channel_.send(to)) lose(to, why);
}

template <class Any>
void exchange<Any>::lose(int peer, std::error_code why) {
  if (node_.is_lost(peer)) return;
  node_.lose(peer, why.message());
  has_lost(peer);
}

template <class Any>
void exchange<Any>::sent(int to) {
  const look_lock hold(*this);
  if (node_.has_message(to)) send(to);
}

template <class Any>
void exchange<Any>::failed(int peer, bool sends, std::error_code why) {
  const look_lock hold(*this);
  if (sends) {
    lose(peer, why);
  } else {
    break_down(std::make_exception_ptr(std::system_error(why, "rendezvous: a receive")));
  }
}

template <class Any>
void exchange<Any>::settled() {
  const look_lock hold(*this);
  advance_closing();
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
  // Between the locks it might close, and go.
  const auto keep = channel_.paused() ? this->shared_from_this() : nullptr;
  {
    const look_lock hold(*this);
    if (closed_.load()) return 0;
    flush(true);
  }
  channel_.resume();
  const look_lock hold(*this);
  stay_awake();
  advance_closing();
  return ended_ - before;
}

/// While this rank waits for others its engine looks for their messages, and has ticks; otherwise
/// it may sleep until the doorbell rings.
template <class Any>
void exchange<Any>::stay_awake() {
  if (!ready_) return;
  const bool waits = node_.waits() || node_.busy() || !transfers_.empty() || may_stall_ ||
                     (left_ && !leave_expired_);
  channel_.expect(waits);
}

template <class Any>
void exchange<Any>::at_tick(clock::time_point now) {
  std::string stalled;
  {
    const look_lock hold(*this);
    if (closed_.load()) return;
    if (options_.ttl > std::chrono::nanoseconds::zero()) {
      sweep_locked(now);
      flush(true);
    }
    if (left_ && now > leave_until_) leave_has_expired();
    bool more = false;
    stalled = who_waits(now, [&](progress::pending_age& age) {
      const bool is_due = stalls_.is_due(age, now);
      more = more || !age.reported;
      return is_due;
    });
    may_stall_ = more && stalls_.is_on();
    stay_awake();
  }
  stalls_.warn(stalled);
}

template <class Any>
void exchange<Any>::list_waiting(std::string& text, clock::time_point now) {
  const lock hold(mutex_);
  const std::string lines = who_waits(now, [](const progress::pending_age&) { return true; });
  if (!lines.empty()) text.append(lines, 1).append("\n");
}

template <class Any>
template <class Predicate>
std::string exchange<Any>::who_waits(clock::time_point now, Predicate wanted) const {
  constexpr std::size_t most = 20;
  std::string lines;
  std::size_t count = 0;
  const auto add = [&](receiver& one, auto text) {
    if (!wanted(one.age) || ++count > most) return;
    lines += "\n  rank " + std::to_string(rank()) + ": rendezvous ";
    lines += text() + ", " + one.age.text(now);
  };
  node_.for_each_waiting([&](const step_state& step, const rendezvous_key* key, receiver& one) {
    add(one, [&] {
      std::string text = key == nullptr ? "drained" : "recv '" + to_string(*key) + "'";
      text += " of step " + std::to_string(step.id);
      if (key != nullptr) text += " from rank " + std::to_string(key->source);
      return text;
    });
  });
  closers_.for_each([&](receiver& one) { add(one, [] { return std::string("close"); }); });
  if (count > most) lines += "\n  and " + std::to_string(count - most) + " more";
  return lines;
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
    const bool waits = step.local.receive(key, one).waits != 0;
    if (step.drain_waits.load()) call([&] { node_.check_drained(step); });
    if (waits && stalls_.is_on()) call([&] { may_stall_ = true; });
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
    return !node_.busy() && transfers_.empty() && node_.speaking().empty() && !channel_.sending();
  };
  if (round_ == 1 && !is_quiet()) return;
  if (round_ == 2) {
    node_.fall_silent();
    if (!is_quiet()) return;
  }
  if (round_ == 3) {
    if (channel_.statistics().messages_received != messages_expected_ || !is_quiet()) return;
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
  channel_.close();
  if (operations_ == 0 && channel_.operations() == 0) finish_closing();
}

template <class Any>
void exchange<Any>::finish_closing() {
  if (closed_.load()) return;
  if (node_.is_open() && !broken_) {
    leaks_ = node_.finish();
    report(leaks_, "closes with values that nobody has received");
  }
  closed_.store(true);
  if (!broken_) process::missing.fetch_sub(missed_);  // they have come after all
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
std::string exchange<Any>::late_text() const {
  return "rank " + std::to_string(rank()) +
         ": rendezvous: the other ranks have not closed in time; its communicators are kept";
}

/// The others may still come; this rank goes on serving them while its loop runs.
template <class Any>
void exchange<Any>::leave_has_expired() {
  if (std::exchange(leave_expired_, true)) return;
  miss();
  log::write(log::level::error, late_text());
  end_closers(std::make_exception_ptr(error(errc::stalled, late_text())));
  if (closing_ != nullptr) source_.load()->set_idle(*closing_, true);
  stay_awake();
}

template <class Any>
void exchange<Any>::break_down(const std::exception_ptr& why) {
  if (broken_) return;
  broken_ = why;
  try {
    node_.break_down(why);
    flush(true);
  } catch (const std::exception&) {  // no memory: the others find out by their deadlines
  }
}

template <class Any>
void exchange<Any>::wait_closed(receiver& one) {
  call([&] {
    begin_closing();
    if (closed_.load()) {
      if (broken_) one.fail(broken_);
      one.end();
    } else if (leave_expired_) {
      one.fail(std::make_exception_ptr(error(errc::stalled, late_text())));
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

template <class Any>
rendezvous_statistics exchange<Any>::statistics() {
  const lock hold(mutex_);
  rendezvous_statistics all = node_.statistics();
  all.chunks = chunks_;
  return all;
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
  wait_in_place();
} catch (const std::exception& problem) {
  log::write(log::level::error, std::string("rendezvous: leaving: ") + problem.what());
}

template <class Any>
void exchange<Any>::abandon() {
  call([this] { begin_closing(); });
  abandoned_ = true;
}

/// False if the others have not closed in time, now or before.
template <class Any>
bool exchange<Any>::wait_in_place() {
  std::chrono::nanoseconds bound{0};
  {
    const lock hold(mutex_);
    if (!leave_expired_) bound = std::min(engine_.drain_bound(), options_.leave_time);
  }
  if (engine_.drive_until([this] { return closed_.load(); }, bound)) return true;
  const comm::request_source::guard guarded(*source_.load());
  const look_lock hold(*this);
  leave_has_expired();
  return false;
}

template <class Any>
void exchange<Any>::drive() {
  if (wait_in_place()) return;
  // The others have not come: MPI keeps what it works on, and freeing is collective.
  progress::left_to_mpi().add(this->shared_from_this());
  const comm::request_source::guard guarded(*source_.load());
  const look_lock hold(*this);
  round_runs_ = true;  // none begins any more
  closing::leave_to_mpi(*this);
  channel_.close();
  if (control_) control_.state()->keep();
}

}  // namespace cohort::meeting
