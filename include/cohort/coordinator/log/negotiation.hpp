// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What is agreed upon in one order, on one rank. Into the room `log` come submissions and
/// messages; elected operations, errors and reports leave.

#include <cohort/comm/channel.hpp>
#include <cohort/coordinator/data/data_plane.hpp>
#include <cohort/coordinator/data/device_gate.hpp>
#include <cohort/coordinator/life/faults.hpp>
#include <cohort/coordinator/life/lifetime.hpp>
#include <cohort/coordinator/life/negotiation_opening.hpp>
#include <cohort/coordinator/log/log_performer.hpp>
#include <cohort/coordinator/log/neighbours.hpp>
#include <cohort/coordinator/log/reports.hpp>
#include <cohort/coordinator/log/submissions.hpp>
#include <cohort/coordinator/sets/groups.hpp>
#include <cohort/coordinator/sets/set_list.hpp>
#include <cohort/coordinator/sets/set_view.hpp>
#include <cohort/coordinator/timeline.hpp>
#include <cohort/coordinator/tuning/tuning.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/protocol/node.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// One log, with the node that decides it, the data plane that carries it out, and the sets of
/// ranks whose operations it orders. What is done with them stands in the classes of its members;
/// here is what they share, and when each gets its turn. Everything runs with the request source
/// locked, which serves all threads.
///
/// It has no handles: these are of its sets, and keep it alive. The context keeps it until it has
/// closed.
template <class Any>
class negotiation final : public comm::look_hook,
                          public std::enable_shared_from_this<negotiation<Any>> {
 public:
  /// Over the ranks of `over`, whose creations it joins in order; does not block [protocol D3].
  /// Options come from the environment where that has them. Throws error(errc::invalid_argument)
  /// for options out of range, of which the others are told.
  static std::shared_ptr<negotiation> make(
      const communicator& over, const coordinator_options& chosen,
      std::shared_ptr<comm::any_backend> host,
      std::shared_ptr<comm::device_backend> devices = nullptr) {
    if (!over) throw error(errc::invalid_communicator, "coordinator");
    std::shared_ptr<negotiation> one;
    std::exception_ptr refused;
    try {
      const coordinator_options own = with_environment(chosen);
      validate(own);
      one = std::make_shared<negotiation>(over, own, std::move(host), std::move(devices));
      one->tuned.load();
    } catch (const std::system_error&
                 problem) {  // the others wait for this rank: it opens one to tell them
      refused = std::current_exception();
      one = std::make_shared<negotiation>(over, coordinator_options(), nullptr);
      one->opening.refused = problem.what();
    }
    asio::use_service<progress::kept_until_closed<negotiation>>(one->engine.context()).add(one);
    {
      const comm::request_source::guard hold(one->source);
      one->source.watch(*one);
    }
    if (one->device) one->device->attach(over);
    one->opening.begin();
    if (refused) std::rethrow_exception(refused);
    return one;
  }
  /// `record` says how a process set was made.
  negotiation(const communicator& over, const coordinator_options& chosen,
              std::shared_ptr<comm::any_backend> host,
              std::shared_ptr<comm::device_backend> devices = nullptr, const creation& record = {})
      : engine(over.state()->engine),
        options(chosen),
        rank(over.rank()),
        size(over.size()),
        parent(over),
        source(over.state()->source),
        backend(std::move(host)),
        device(*this, std::move(devices)),
        sets(*this, over, chosen, record),
        node(negotiation_opening<Any>::make_tree(over, chosen),
             std::vector<rank_set>{rank_set::span(0, over.size() - 1)},
             negotiation_opening<Any>::node_options_of(chosen)) {}
  ~negotiation() {
    const comm::request_source::guard hold(source);
    source.forget(*this);
  }

  progress::engine& engine;
  coordinator_options options;  ///< the log may change those that are tuned
  const int rank;
  const int size;
  communicator parent;
  communicator control;  ///< messages on its data, operations posted whole on its exchange
  communicator slots;    ///< later parts
  comm::request_source& source;
  std::shared_ptr<comm::any_backend> backend;  ///< for the host

  submissions<Any> tasks{*this};
  reports_of<Any> reports{*this};
  device_gate<Any> device;
  set_list<Any> sets;  // whose communicators go before the device's backend
  protocol::node node;
  log_performer<Any> performer{*this};
  data_plane plane{performer.client(), options, options.slots};
  group_list<Any> groups{*this};
  recorder<Any> recording{*this, rank, size};
  tuning<Any> tuned{*this};
  neighbours_in_tree<Any> neighbours{*this};
  fault_handling<Any> faults{*this};
  decision_watch<Any> decisions{*this};
  lifetime<Any> life{*this};
  negotiation_opening<Any> opening{*this};

  /// As a handle of a set keeps it, with all this.
  [[nodiscard]] std::shared_ptr<instance> handle_of(set_view<Any>& one) {
    return {this->shared_from_this(), &one};
  }
  /// Takes in what has come, decides, tells, and does what is decided.
  // Messages first: what is started here then overlaps with their way. A burst of submissions comes
  // as one message, so deciding at once separates nothing that could have shared a pack.
  void advance() {
    tasks.announced();
    if (const std::size_t finished = performer.take_finished()) node.finished(finished);
    if (tuned.active()) tuned.decide();
    node.decide();
    neighbours.flush();
    performer.perform();
    neighbours.flush();
    if (sets.adds()) sets.confirm();
  }
  /// At the next look; with the guard held.
  void touch() {
    if (!life.has_opened() || life.closed()) return;
    source.at_next_look(*this);
    engine.started();
  }
  /// Data has arrived: whoever waits for the end of that gets a turn.
  void touch_for_end() {
    if (sets.whole().left || faults.broken || faults.any() || plane.waiting() != 0 || sets.adds() ||
        sets.ends()) {
      touch();
    }
  }
  /// While this rank waits for others its engine looks for their messages; otherwise it may sleep
  /// until the doorbell rings.
  void stay_awake() {
    if (neighbours
            .none()) {  // alone: what waits, waits for a plan, or on a device for its deadline
      if (node.pending() != 0 || tasks.deadlines() != 0) source.at_next_look(*this);
      return;
    }
    const bool waits = !tasks.empty() || sets.awaits_end() || node.deadline().has_value() ||
                       (faults.of_all() && !faults.settled());
    neighbours.channel.expect(waits);
  }
  /// A recording needs the time itself, which is stale after a computation otherwise.
  [[nodiscard]] clock::time_point now() const noexcept {
    return recording.events->active() ? clock::now() : engine.coarse_now();
  }

  std::size_t at_look() override {
    if (faults.broken) life.check_released();
    // Its backend may have stopped looking: the ticks that give it up must come.
    if (device.failed() && !life.closed() && plane.on_devices() != 0) source.at_next_look(*this);
    if (!life.has_opened() || faults.broken || faults.to_break) return 0;
    const std::size_t before = tasks.completed();
    try {
      advance();
      sets.release_ended();
    } catch (...) {
      faults.break_down(std::current_exception());
      return tasks.completed() - before;
    }
    stay_awake();
    life.check_released();
    return tasks.completed() - before;
  }
  void at_tick(clock::time_point at) override {
    if (life.closed()) return;
    recording.take_device_times();
    recording.events->flush();
    sets.watch_leaving(at);
    faults.watch(at);
    device.watch(at);
    if (faults.broken || faults.to_break || life.closed()) return;
    try {
      if (const auto due = node.deadline(); due && *due <= nanoseconds(at)) {
        node.expire(nanoseconds(at));
        touch();
      }
      tasks.expire(at);
      if (life.has_opened()) {
        decisions.watch(at);
        reports.watch_plan(at);
      }
    } catch (...) {
      return faults.break_down(std::current_exception());
    }
    reports.watch_stalls(at);
  }
  void list_waiting(std::string& text, clock::time_point at) override {
    reports.list_waiting(text, at);
  }

  // At the end of the context: see progress::kept_until_closed.
  [[nodiscard]] bool closed() const noexcept { return life.closed(); }
  void abandon() { life.abandon(); }
  void drive() { life.drive(); }
  // What dies with one operation, a coroutine say, must not wait for another.
  void settle_tasks() {
    tasks.settle();
    sets.for_each([](set_view<Any>& one) {
      if (one.maker != nullptr) one.maker->settle();
    });
  }
  void destroy_tasks() {
    device.close();  // before the services that it uses go
    tasks.destroy();
    sets.for_each([](set_view<Any>& one) { one.destroy_tasks(); });
  }
};

template <std::same_as<communicator> Communicator>
std::shared_ptr<instance> open_instance(const Communicator& parent,
                                        const coordinator_options& options,
                                        std::shared_ptr<comm::any_backend> backend,
                                        std::shared_ptr<comm::device_backend> device) {
  const auto made = negotiation<void>::make(parent, options, std::move(backend), std::move(device));
  return made->handle_of(made->sets.whole());
}

}  // namespace cohort::coordination
