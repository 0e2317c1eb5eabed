// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How the messages and large values of a node reach other ranks.
///
/// The room `exchange` owns one rank of a rendezvous on MPI. Calls of the verbs enter by the
/// interface `endpoint` of `operation.hpp`, messages by `comm/channel.hpp`; the ends of receivers,
/// and warnings, leave.

#include <cohort/comm/channel.hpp>
#include <cohort/core/log.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/rendezvous/node/node.hpp>
#include <cohort/rendezvous/operation.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// What the parts of an exchange share: the node, and the source within whose looks it is driven.
///
/// Two locks. The request source's guards all that touches MPI; `mutex` guards the node, and is
/// taken inside it, never around it. What a call of the user has to send leaves at the next look.
/// Neither is held while a value is destroyed whose destructor may be the program's.
template <class Any>
class exchange_core : public comm::look_hook {
 public:
  using lock = std::unique_lock<short_lock>;
  class look_lock;

  exchange_core(progress::engine& by, const rendezvous_options& with)
      : engine(by), options(with), node(with.node) {}

  /// With both locks: something has happened that a later step may have waited for.
  virtual void advance() = 0;

  /// A call of the user, under the node's lock. What it has to send leaves at the next look.
  template <class Call>
  void call(Call what) {
    packet_list dropped;  // destroyed last
    {
      const lock hold(mutex);
      what();
      if (!node.dropped().empty()) dropped = std::move(node.dropped());
    }
    comm::request_source* const requests = source.load();
    // Relaxed: the look clears the flag before it takes the mutex that this call has just held.
    if (requests == nullptr || closed.load() || look_wanted.load(std::memory_order_relaxed)) return;
    if (look_wanted.exchange(true, std::memory_order_relaxed)) return;
    {
      const comm::request_source::guard hold(*requests);
      if (closed.load()) return;  // since then; the source has forgotten this hook
      requests->at_next_look(*this);
    }
    engine.started();
  }
  /// Some rank may never come: from now on MPI_Finalize, which waits for all, has a bound.
  void miss() {
    ++missed;
    process::missing.fetch_add(1);
  }

  progress::engine& engine;
  const rendezvous_options options;
  std::atomic<comm::request_source*> source{nullptr};
  std::atomic<bool> look_wanted{false};
  std::atomic<bool> closed{false};
  mutable short_lock mutex;
  basic_node<Any> node;
  communicator parent;         // as it was given
  std::size_t operations = 0;  // large values under way, and the opening
  std::exception_ptr broken;
  int missed = 0;  // of process::missing

 protected:
  ~exchange_core() override = default;
};

/// The node's lock, taken inside a look. Values that are dropped meanwhile are handed to the
/// engine, which destroys them.
template <class Any>
class exchange_core<Any>::look_lock {
 public:
  explicit look_lock(exchange_core& owner) : owner_(owner), hold_(owner.mutex) {}
  look_lock(const look_lock&) = delete;
  look_lock& operator=(const look_lock&) = delete;
  ~look_lock() {
    if (owner_.node.dropped().empty()) return;
    try {
      owner_.engine.complete(new dropped_values(std::move(owner_.node.dropped())));
    } catch (const std::bad_alloc&) {
      return;  // the next call destroys them
    }
  }

 private:
  class dropped_values final : public progress::operation {
   public:
    explicit dropped_values(packet_list&& values) noexcept
        : operation(&run), values_(std::move(values)) {}

   private:
    static void run(operation* base, action) { delete static_cast<dropped_values*>(base); }
    packet_list values_;
  };

  exchange_core& owner_;
  const lock hold_;
};

/// Messages go over one communicator, into one receive from any rank; large values over a second
/// one, under the tag that the receiver has chosen. Its functions need both locks.
template <class Any>
class messenger final : private comm::channel::client {
 public:
  explicit messenger(exchange_core<Any>& all)
      : here_(all),
        channel_(*this, {.send_verb = "rendezvous_send", .receive_verb = "rendezvous_recv"}) {}

  void open(communicator control, std::shared_ptr<comm::message_rings> rings) {
    control_ = std::move(control);
    channel_.open(control_, {}, std::move(rings));
    ready_ = true;
  }
  [[nodiscard]] bool is_open() const noexcept { return ready_; }
  /// Messages and the rounds of closing on its data, large values on its exchange.
  [[nodiscard]] const communicator& control() const noexcept { return control_; }

  /// Sends what is written, unless a message to that rank is still under way. Without `all`,
  /// acknowledgements alone wait for the next look, to travel with what the handlers of this one
  /// have to send.
  void flush(bool all) {
    if (!ready_) return;
    if (here_.node.has_transfers()) start_transfers();
    basic_outbox<Any>& outbox = here_.node.outbox();
    std::vector<int>& pending = outbox.pending();
    bool look_again = !all && channel_.paused();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < pending.size(); ++i) {
      const int to = pending[i];
      const bool has_time = !all && !outbox.has_urgent(to);
      if (has_time) look_again = true;
      if (has_time || channel_.sending(to)) {
        pending[kept++] = to;
      } else if (outbox.take_message(to, channel_.message(to))) {
        if (const std::error_code why = channel_.send(to)) lose(to, why);
      }
    }
    pending.resize(kept);
    if (!look_again) return;
    here_.look_wanted.store(true, std::memory_order_relaxed);
    here_.source.load()->at_next_look(here_);
  }
  /// While this rank waits for others, its engine looks for their messages and has ticks. Otherwise
  /// it may sleep until the doorbell rings.
  void expect(bool waits) {
    if (ready_) channel_.expect(waits || here_.node.waits() || !is_idle());
  }
  [[nodiscard]] bool paused() const noexcept { return channel_.paused(); }
  /// With the lock of the request source alone.
  void resume() { channel_.resume(); }

  /// Everything ends with `why`, here and on the other ranks.
  void break_down(const std::exception_ptr& why) {
    if (here_.broken) return;
    here_.broken = why;
    try {
      here_.node.break_down(why);
      flush(true);
    } catch (const std::exception&) {  // no memory: the others find out by their deadlines
    }
  }

  // For the rounds of closing.
  /// All requests of this rank are answered, and all it has to send has gone.
  [[nodiscard]] bool is_quiet() const noexcept {
    return is_idle() && here_.node.outbox().pending().empty() && !channel_.sending();
  }
  [[nodiscard]] std::uint64_t messages_to(int rank) const noexcept {
    return channel_.messages_to(rank);
  }
  [[nodiscard]] std::uint64_t messages_received() const noexcept {
    return channel_.statistics().messages_received;
  }
  [[nodiscard]] std::uint64_t chunks() const noexcept { return chunks_; }
  /// False until MPI has given back all that this has there.
  bool close() {
    channel_.close();
    return channel_.operations() == 0;
  }
  /// The communicators stay as they are: freeing them is collective.
  void keep() {
    if (control_) control_.state()->keep();
  }
  void release() { control_ = communicator(); }

 private:
  using look_lock = typename exchange_core<Any>::look_lock;
  class transfer_operation;

  [[nodiscard]] bool is_idle() const noexcept { return !here_.node.busy() && transfers_.empty(); }
  void start_transfers() {
    for (const transfer& one : here_.node.take_transfers()) {
      auto* op = new transfer_operation(*this, one);
      ++here_.operations;
      transfers_.push_back(op);
      const int rc = op->post(control_.state()->exchange.native());
      if (rc == MPI_SUCCESS) continue;
      op->fail(mpi::make_error(rc));
      if (comm::request_source::pending(*op)) continue;  // the chunks that were posted come first
      op->ended();
      delete op;
    }
  }
  void lose(int peer, std::error_code why) {
    if (here_.node.outbox().is_lost(peer)) return;
    here_.node.lose(peer, why.message());
    has_lost(peer);
  }
  void has_lost(int peer) {
    log::write(log::level::error, "rank " + std::to_string(here_.node.rank()) +
                                      ": rendezvous: rank " + std::to_string(peer) +
                                      " is lost: " + here_.node.outbox().why_lost(peer));
    here_.miss();
    for (const auto& [from, request] : here_.node.take_given_up()) {
      for (transfer_operation* const one : transfers_) {
        if (one->is_receive(from, request)) here_.source.load()->cancel(*one);
      }
    }
  }

  // The channel's; these take the node's lock.
  void received(int from, unsigned, std::span<const std::byte> message) override {
    const look_lock hold(here_);
    const std::size_t ended_before = endpoint::ended();
    try {
      if (!here_.node.outbox().is_lost(from)) {
        here_.node.receive(from, message);
        if (here_.node.outbox().is_lost(from)) has_lost(from);
      }
    } catch (...) {
      break_down(std::current_exception());
    }
    if (endpoint::ended() != ended_before)
      channel_.pause();  // what those have to send leaves first
    flush(false);
    here_.advance();
  }
  void malformed(int from, const char* what) override {
    const look_lock hold(here_);
    if (!here_.node.outbox().is_lost(from) && !here_.broken) {
      here_.node.refuse_message(from, what);
      has_lost(from);
    }
    flush(false);
    here_.advance();
  }
  void sent(int) override {
    const look_lock hold(here_);
    flush(false);
  }
  void failed(int peer, bool sends, std::error_code why) override {
    const look_lock hold(here_);
    if (!sends) {
      return break_down(std::make_exception_ptr(std::system_error(why, "rendezvous: a receive")));
    }
    lose(peer, why);
    flush(false);
  }
  void settled() override {
    const look_lock hold(here_);
    here_.advance();
  }

  exchange_core<Any>& here_;
  communicator control_;
  comm::channel channel_;  // touched with the request source locked
  std::vector<transfer_operation*> transfers_;
  std::uint64_t chunks_ = 0;  // sent
  bool ready_ = false;
};

/// A large value, in chunks.
template <class Any>
class messenger<Any>::transfer_operation final : public comm::request_operation {
 public:
  transfer_operation(messenger& owner, const transfer& what) noexcept
      : request_operation(&run), owner_(owner), what_(what) {
    advance_ = &advanced;
    advances_failed_ = true;
    verb = what.incoming ? "rendezvous_take" : "rendezvous_give";
    stalls = what.incoming;
    rank = owner.here_.node.rank();
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
    const std::uint64_t chunk = owner_.here_.options.chunk_bytes;
    for (std::uint64_t at = 0; at < what_.size; at += chunk) {
      const auto count = static_cast<MPI_Count>(std::min(chunk, what_.size - at));
      MPI_Request request = MPI_REQUEST_NULL;
      const int rc = what_.incoming ? mpi::post::irecv(what_.into + at, count, MPI_BYTE, what_.peer,
                                                       what_.tag, comm, &request)
                                    : mpi::post::isend(what_.from + at, count, MPI_BYTE, what_.peer,
                                                       what_.tag, comm, &request);
      if (rc != MPI_SUCCESS) return rc;
      if (!what_.incoming) ++owner_.chunks_;
      owner_.here_.source.load()->add(request, *this);
    }
    return MPI_SUCCESS;
  }
  void ended() {
    --owner_.here_.operations;
    std::erase(owner_.transfers_, this);
    owner_.here_.node.transferred(what_, error());
  }

 private:
  static bool advanced(request_operation* base) {
    auto* self = static_cast<transfer_operation*>(base);
    messenger& owner = self->owner_;
    const look_lock hold(owner.here_);
    self->ended();
    owner.flush(false);
    owner.here_.advance();
    return false;
  }
  static void run(operation* base, action) { delete static_cast<transfer_operation*>(base); }

  messenger& owner_;
  transfer what_;
};

}  // namespace cohort::meeting
