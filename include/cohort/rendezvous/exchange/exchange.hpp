// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A rendezvous over MPI: the calls of one rank, its looks, and how it is opened.

#include <cohort/progress/context.hpp>
#include <cohort/progress/look_task.hpp>
#include <cohort/progress/polled_source.hpp>
#include <cohort/rendezvous/exchange/life.hpp>
#include <cohort/rendezvous/exchange/messenger.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// A line break and a line for each who waits here for a value, for the end of a step or for the
/// close of all, and of whose age `wanted` says true; of many, for the first of them.
template <class Node, class Predicate>
[[nodiscard]] std::string who_waits(const Node& of, const receiver_list& closers,
                                    progress::engine::clock::time_point now, Predicate wanted) {
  constexpr std::size_t most = 20;
  std::string lines;
  std::size_t count = 0;
  const auto add = [&](receiver& one, auto text) {
    if (!wanted(one.age) || ++count > most) return;
    lines += "\n  rank " + std::to_string(of.rank()) + ": rendezvous ";
    lines += text() + ", " + one.age.text(now);
  };
  of.for_each_waiting([&](const step_state& step, const rendezvous_key* key, receiver& one) {
    add(one, [&] {
      std::string text = key == nullptr ? "drained" : "recv '" + to_string(*key) + "'";
      text += " of step " + std::to_string(step.id);
      if (key != nullptr) text += " from rank " + std::to_string(key->source);
      return text;
    });
  });
  closers.for_each([&](receiver& one) { add(one, [] { return std::string("close"); }); });
  if (count > most) lines += "\n  and " + std::to_string(count - most) + " more";
  return lines;
}

/// One rank of a rendezvous. A call of the user takes the node's lock and asks for a look of the
/// engine; in that look it sends messages to the other ranks.
template <class Any>
class exchange final : public endpoint,
                       private exchange_core<Any>,
                       public std::enable_shared_from_this<exchange<Any>> {
 public:
  /// Throws error(errc::invalid_argument) for options out of range.
  exchange(progress::engine& by, const rendezvous_options& with)
      : endpoint(by),
        core(by, with),
        messenger_(*this),
        sweep_(with.ttl),
        closing_(*this, messenger_) {
    incarnation_ = process_incarnation();
    constexpr int most_tags = 32767;  // every MPI has so many
    if (with.chunk_bytes == 0 || with.node.tags < 1 || with.node.tags > most_tags) {
      throw error(errc::invalid_argument, std::string("rendezvous: ") + option_ranges);
    }
  }

  /// This rank's options are out of range: it is opened only to tell the others.
  void refuse() noexcept { refuses_ = true; }

  void initialize(const communicator& world) override {
    if (!world) throw error(errc::invalid_communicator, "rendezvous");
    if (&world.state()->engine != &engine_) {
      throw error(errc::invalid_communicator, "rendezvous: a communicator of another context");
    }
    comm::request_source& requests = world.state()->source;
    if (const errc bad = requests.usable(); bad != errc{}) throw error(bad, "rendezvous");
    {
      const guard guarded(requests);
      auto opening = open_with_others<Any>(*this, messenger_,
                                           {incarnation_, refuses_ ? 0 : options.chunk_bytes});
      if (!begin_opening(world)) return;
      progress::begin_look_task(std::move(opening), {.verb = "rendezvous"},
                                [this](const std::exception_ptr& why) {
                                  const guard held(*source.load());
                                  const look_lock hold(*this);
                                  if (why) messenger_.break_down(why);
                                  if (stalls_.is_on()) may_stall_ = true;  // a tick may have been
                                  --this->operations;
                                  advance();
                                });
    }
    engine_.started();
  }
  [[nodiscard]] std::uint64_t incarnation(int rank) override {
    const lock hold(mutex);
    if (!node.is_open()) throw error(errc::not_initialised, "rendezvous: incarnation");
    if (rank < 0 || rank >= node.size()) throw error(errc::bad_rank, "rendezvous: incarnation");
    return node.incarnation(rank);
  }
  [[nodiscard]] step_ptr step(step_id id) override {
    step_ptr one;
    call([&] {
      if (sweep_.is_on()) sweep_.sweep(node, clock::now());
      one = node.step(id);
      one->leases.fetch_add(1);
      one->last_use.store(clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    });
    return one;
  }
  void send(step_state& step, const rendezvous_key& key, packet_ptr value) override {
    check_name(key);
    used(step);
    if (is_own(key)) {
      step.local.send(key, std::move(value));
      return;
    }
    if (comm::request_source* const requests = source.load()) {
      if (const errc bad = requests->usable(); bad != errc{}) throw error(bad, "rendezvous: send");
    }
    call([&] {
      if (!node.is_open()) {
        if (const auto why = step.local.ended()) std::rethrow_exception(why);
        step.deferred.emplace_back(owned_key(key), std::move(value));
        return;
      }
      if (key.source_incarnation != 0 && key.source == node.rank() &&
          key.source_incarnation != incarnation_) {
        throw error(errc::stale_incarnation, "'" + to_string(key) + "': send");
      }
      node.send(step, key, value);
    });
  }
  void receive(step_state& step, const rendezvous_key& key, receiver& one) override {
    check_name(key);
    used(step);
    if (is_own(key)) {
      const step_ptr keep = step.shared_from_this();
      const bool waits = step.local.receive(key, one).waits != 0;
      if (step.drain_waits.load()) call([&] { node.check_drained(step); });
      if (waits && stalls_.is_on()) call([&] { may_stall_ = true; });
      return;
    }
    comm::request_source* const requests = source.load();
    if (requests != nullptr && key.source != rank()) {
      if (const errc bad = requests->usable(); bad != errc{}) throw error(bad, "rendezvous: recv");
    }
    step_ptr keep;  // not destroyed with the lock
    call([&] {
      if (node.look_up(step.id) != &step) keep = step.shared_from_this();
      node.receive(step, key, one);
    });
  }
  void cancel(step_state* step, receiver& one, const std::exception_ptr& why) override {
    call([&] {
      if (step == nullptr) return closing_.stop_waiting(one, why);
      if (!node.cancel(*step, one, why)) node.stop_draining(*step, one, why);
    });
  }
  void drain(step_state& step, receiver& one) override {
    call([&] { node.drain(step, one); });
  }
  void release(step_state& step) noexcept override {
    used(step);
    step.leases.fetch_sub(1);
  }
  [[nodiscard]] std::vector<waiting_key> waiting(const step_state& step) override {
    return step.local.list();
  }
  void abort(step_state& step, const std::exception_ptr& why) override {
    call([&] { node.abort(step, why); });
  }
  void cleanup(step_id id) override {
    call([&] { node.cleanup(id); });
  }
  void sweep() override {
    call([&] { sweep_.sweep(node, clock::now(), true); });
  }
  [[nodiscard]] std::vector<step_id> steps() override {
    const lock hold(mutex);
    return node.steps();
  }
  void leave(std::string_view why) override {
    call([&] { closing_.begin(why); });
  }
  void wait_closed(receiver& one) override {
    call([&] { closing_.wait(one); });
  }
  [[nodiscard]] std::vector<leaked_value> leaks() override {
    const lock hold(mutex);
    return closing_.leaks();
  }
  [[nodiscard]] rendezvous_statistics statistics() override {
    const lock hold(mutex);
    rendezvous_statistics all = node.statistics();
    all.chunks = messenger_.chunks();
    return all;
  }
  /// For destructors. Inside the loop the rank leaves in the background.
  void leave_in_place() noexcept override try {
    if (abandoned_ || core::closed.load()) return;
    call([this] { closing_.begin(); });
    if (core::closed.load() || engine_.is_in_handler() || !engine_.context().stopped()) {
      return;
    }
    wait_in_place();
  } catch (const std::exception& problem) {
    log::write(log::level::error, std::string("rendezvous: leaving: ") + problem.what());
  }
  /// And no look is inside it any more.
  [[nodiscard]] bool closed() const noexcept override {
    const lock hold(mutex);
    return core::closed.load();
  }
  void abandon() override {
    call([this] { closing_.begin(); });
    abandoned_ = true;
  }
  void drive() override {
    if (wait_in_place()) return;
    progress::left_to_mpi().add(this->shared_from_this());
    const guard guarded(*source.load());
    const look_lock hold(*this);
    closing_.leave_to_mpi();
  }

 private:
  using core = exchange_core<Any>;
  using clock = progress::engine::clock;
  using guard = comm::request_source::guard;
  using core::call;
  using core::mutex;
  using core::node;
  using core::options;
  using core::source;
  using typename core::lock;
  using typename core::look_lock;
  std::size_t at_look() override {
    this->look_wanted.store(false, std::memory_order_relaxed);
    const std::size_t before = ended_;
    // Between the locks it might close, and go.
    const auto keep = messenger_.paused() ? this->shared_from_this() : nullptr;
    {
      const look_lock hold(*this);
      if (core::closed.load()) return 0;
      messenger_.flush(true);
    }
    messenger_.resume();
    const look_lock hold(*this);
    advance();
    return ended_ - before;
  }
  void at_tick(clock::time_point now) override {
    std::string stalled;
    {
      const look_lock hold(*this);
      if (core::closed.load()) return;
      if (sweep_.is_on()) {
        sweep_.sweep(node, now);
        messenger_.flush(true);
      }
      closing_.check_deadline(now);
      bool more = false;
      stalled = who_waits(node, closing_.waiting(), now, [&](progress::pending_age& age) {
        const bool is_due = stalls_.is_due(age, now);
        more = more || !age.reported;
        return is_due;
      });
      may_stall_ = more && stalls_.is_on();
      stay_awake();
    }
    stalls_.warn(stalled);
  }
  void list_waiting(std::string& text, clock::time_point now) override {
    const lock hold(mutex);
    const std::string lines =
        who_waits(node, closing_.waiting(), now, [](const progress::pending_age&) { return true; });
    if (!lines.empty()) text.append(lines, 1).append("\n");
  }
  void advance() override {
    stay_awake();
    closing_.advance();
  }
  void stay_awake() {
    messenger_.expect(may_stall_ || (closing_.has_begun() && !closing_.has_expired()));
  }
  void used(step_state& step) const noexcept {
    step.last_use.store(engine_.coarse_now().time_since_epoch().count(), std::memory_order_relaxed);
  }
  /// Whether it is from this rank to itself: then only the table, with its own lock, is concerned.
  [[nodiscard]] bool is_own(const rendezvous_key& key) const noexcept {
    const int me = rank();
    return me >= 0 && key.source == me && key.destination == me &&
           (key.source_incarnation == 0 || key.source_incarnation == incarnation_);
  }
  /// False if it is initialised with such a communicator.
  bool begin_opening(const communicator& world) {
    const look_lock hold(*this);
    if (node.closing()) throw error(errc::closed, "rendezvous");
    if (node.is_open()) {
      int relation = MPI_UNEQUAL;
      mpi::check(MPI_Comm_compare(world.native(), this->parent.native(), &relation),
                 "MPI_Comm_compare");
      if (relation == MPI_CONGRUENT || relation == MPI_IDENT) return false;
      throw error(errc::invalid_communicator,
                  "rendezvous: it is initialised with another communicator");
    }
    this->parent = world;
    source.store(&world.state()->source);
    source.load()->watch(*this);
    rank_.store(world.rank(), std::memory_order_release);
    node.open(world.rank(), world.size(), incarnation_);
    may_stall_ = stalls_.is_on();
    ++this->operations;  // what another thread closes now waits for it
    return true;
  }
  /// False if the others have not closed in time, now or before.
  bool wait_in_place() {
    std::chrono::nanoseconds bound{0};
    {
      const lock hold(mutex);
      if (!closing_.has_expired()) bound = std::min(engine_.drain_bound(), options.leave_time);
    }
    if (engine_.drive_until([this] { return core::closed.load(); }, bound)) return true;
    const guard guarded(*source.load());
    const look_lock hold(*this);
    closing_.expire();
    stay_awake();
    return false;
  }

  messenger<Any> messenger_;
  step_sweep sweep_;
  progress::stall_watch stalls_;
  bool refuses_ = false;
  bool abandoned_ = false;
  bool may_stall_ = false;  // somebody waits who may have to be named, if only for this rank itself
  closing<Any> closing_;    // destroyed first: no look is inside this then
};

template <class Any>
handle_ptr open_endpoint(progress::engine& engine, const rendezvous_options& options,
                         const communicator& world) {
  std::shared_ptr<exchange<Any>> one;
  std::exception_ptr refused;
  const auto make = [&](const rendezvous_options& with) {
    one = std::make_shared<exchange<Any>>(engine, with);
    asio::use_service<progress::kept_until_closed<endpoint>>(engine.context()).add(one);
  };
  try {
    make(options);
  } catch (const error&) {  // the others wait for this rank: it opens one to tell them
    if (!world) throw;
    refused = std::current_exception();
    make({});
    one->refuse();
  }
  auto handle = std::make_shared<endpoint_handle>(one);
  if (world) one->initialize(world);
  if (refused) std::rethrow_exception(refused);
  return handle;
}

}  // namespace cohort::meeting
