// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The sets of a negotiation on this rank, and the making of process sets.

#include <cohort/comm/joint.hpp>
#include <cohort/coordinator/sets/set_view.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/look_task.hpp>
#include <cohort/protocol/node.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// A process set is made in two stages: its members agree on it, and when all that was elected
/// before is complete on them they confirm it, and make its communicator. [protocol D2] It leaves
/// here with a log of its own or, where there is a backend for devices, as one more set of this
/// one.
template <class Any>
class set_list {
 public:
  set_list(negotiation<Any>& log, const communicator& over, const coordinator_options& options,
           const creation& record)
      : log_(log) {
    views_.emplace(0, std::make_unique<set_view<Any>>(log, over, options, record));
  }

  /// All ranks of the log.
  [[nodiscard]] set_view<Any>& whole() const noexcept { return *views_.begin()->second; }
  /// One that this rank is a member of.
  [[nodiscard]] set_view<Any>& at(std::uint32_t set) const { return *views_.at(set); }
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [set, one] : views_) visit(*one);
  }
  /// Whether the backend makes what some set needs, beside the whole.
  [[nodiscard]] bool opens() const noexcept {
    return std::any_of(views_.begin(), views_.end(), [](const auto& one) {
      return one.second->opening && !one.second->is_whole();
    });
  }
  /// Whether somebody waits for the other ranks to leave.
  [[nodiscard]] bool awaits_end() const noexcept {
    return (whole().left && !whole().leave_expired) ||
           std::any_of(views_.begin(), views_.end(),
                       [](const auto& one) { return !one.second->closing.empty(); });
  }
  [[nodiscard]] bool adds() const noexcept { return !adding_.empty(); }
  [[nodiscard]] bool ends() const noexcept { return !ended_.empty(); }
  /// A process set that all members have asked for, and that waits for earlier operations here.
  [[nodiscard]] bool is_between(const task& one) const noexcept {
    return std::find(adding_.begin(), adding_.end(), &one) != adding_.end();
  }
  /// Lets go of such a one: true if it was.
  bool forget(task& one) { return std::erase(adding_, &one) != 0; }
  void completed(const task& one) noexcept {
    if (confirmed_ == &one) confirmed_ = nullptr;
  }

  void add(task& one) {
    auto& record = *static_cast<creation*>(one.context);
    {
      const comm::request_source::guard hold(log_.source);
      ++one.view->counted.submitted;
      if (record.like && !find_members(one, record)) return log_.tasks.complete(one);
      rank_set listed;
      for (const int rank : record.members) listed.insert(rank);
      if (log_.faults.broken) {
        one.fail(log_.faults.broken);
        return log_.tasks.complete(one);
      }
      if (listed.empty() || listed.back() >= log_.size) {
        one.fail(errc::bad_rank, "add_process_set: ranks " + record.members.str() + " of " +
                                     std::to_string(log_.size));
        return log_.tasks.complete(one);
      }
      if (!listed.contains(log_.rank)) return log_.tasks.complete(one);
      protocol::signature sig;
      sig.kind = op_kind::barrier;
      sig.flags = protocol::signature_flag::alone;
      sig.members = record.members.str();  // in the order given: it decides who is which rank
      one.kind = op_kind::barrier;
      const bool confirms = record.id != 0;
      if (confirms && log_.device)
        sig.kind = op_kind::set_add;  // one log for all sets [protocol D1]
      const std::string name = protocol::listed_name(
          listed, confirms ? "make " + std::to_string(record.id) : std::string("add"));
      const auto result = log_.node.submit(0, name, sig, reinterpret_cast<std::uint64_t>(&one));
      if (result.status == protocol::submission_status::refused) {
        one.fail(log_.tasks.refusal("add_process_set"));
        return log_.tasks.complete(one);
      }
      if (result.status == protocol::submission_status::failed) {
        one.fail(
            log_.reports.error_of(*one.view, "add_process_set", "add_process_set", *result.why));
        return log_.tasks.complete(one);
      }
      one.name = result.name;
      one.epoch = result.number;
      one.operation_ref = result.operation;
      if (!confirms) {
        one.submitted = log_.now();
        log_.tasks.link(one);
      } else if (one.withdrawn) {
        log_.node.withdraw(one.operation_ref, one.withdrawn_for, nanoseconds(clock::now()));
      }
      if (!log_.life.has_opened()) return;
      log_.source.at_next_look(log_);
      log_.stay_awake();
    }
    log_.engine.started();
  }
  /// All listed members have asked for it; or have said that what came before is complete.
  void listed_elected(task& own, const protocol::action& at) {
    auto& record = *static_cast<creation*>(own.context);
    if (log_.node.shape().is_root()) {
      log_.performer.finished();
      log_.touch();
    }
    if (record.id == 0) {
      if (!own.linked) return own.destroy();  // this rank has left, and confirms nothing
      record.id = at.log_count;
      own.undecided = {};  // if it has been withdrawn, that came too late, and is asked for again
      adding_.push_back(&own);
    } else {
      if (at.made != protocol::none) record.number = at.made;
      auto opening = make_with_others(own);
      making_.push_back(&own);
      if (log_.device) {
        unplaced_ = record.number;
        log_.plane.hold_behind(at.log_count);
      }
      own.started = true;
      ++log_.life.openings;
      progress::begin_look_task(std::move(opening), {.verb = "add_process_set"},
                                [this, &own](const std::exception_ptr& why) {
                                  const comm::request_source::guard held(log_.source);
                                  std::erase(making_, &own);
                                  if (why && !log_.faults.broken) not_made(own, why);
                                  --log_.life.openings;
                                  log_.life.check_released();
                                });
    }
  }
  // With a backend for devices one after the other, in the order of the log, each when the one
  // before is open: making a set blocks in MPI, and what the backend makes meanwhile would wait for
  // ranks that are blocked there.
  void confirm() {
    for (std::size_t i = 0; i < adding_.size();) {
      if (log_.device && (whole().opening || confirmed_ != nullptr || opens())) return;
      task& one = *adding_[i];
      if (!log_.plane.complete_before(static_cast<creation*>(one.context)->id)) {
        ++i;
        continue;
      }
      adding_.erase(adding_.begin() + static_cast<std::ptrdiff_t>(i));
      if (log_.device) confirmed_ = &one;
      add(one);
    }
  }
  /// Takes the place of a set's opening among the operations: that of its election, which is the
  /// same on all ranks, however long MPI takes here to make its communicator. NCCL's first call on
  /// a communicator waits for the other ranks, so two of them in another order on another rank
  /// would wait for ever.
  void place() {
    if (!log_.plane.started_what_it_may()) return log_.source.at_next_look(log_);
    log_.device->reserve(std::exchange(unplaced_, 0));
    log_.plane.hold_nothing();
    log_.plane.run();
    if (made_ != nullptr) open_made();
  }
  [[nodiscard]] bool lacks_place() const noexcept { return unplaced_ != 0; }
  void ended(std::uint32_t set) { ended_.push_back(set); }
  // In the order of the log: what is freed there may have to meet.
  void release_ended() {
    while (!ended_.empty() && !log_.faults.any()) {
      const auto found = views_.find(ended_.front());
      if (found != views_.end()) {
        set_view<Any>& one = *found->second;
        if (one.opening || !log_.plane.idle_at(one.place)) return;
        log_.groups.forget(one);
        try {
          log_.device->close(one.place.set);
        } catch (const std::exception& problem) {
          log::write(log::level::error, problem.what());
        }
        one.release();
      }
      ended_.pop_front();
    }
  }
  /// What waits for a set to be opened ends; without a reason, by the fault.
  void end_makers(const std::exception_ptr& why) {
    for (const auto& [set, one] : views_) {
      if (task* const own = std::exchange(one->maker, nullptr)) {
        own->fail(why ? why : log_.faults.error_for(*own));
        log_.tasks.complete(*own);
      }
    }
  }
  /// The members of sets that are being made wait for this rank's communicator: that goes on.
  void break_down(const std::exception_ptr& why) {
    for (const auto& [set, one] : views_) one->joining = nullptr;
    adding_.clear();
    for (task* each : std::exchange(making_, {})) {
      each->fail(why);
      log_.tasks.complete(*each);
    }
    end_makers(why);
  }
  void watch_leaving(clock::time_point at) {
    for (const auto& [set, one] : views_) {
      if (!one->left || one->leave_expired || at <= one->leave_until) continue;
      if (one->is_whole()) {
        log_.life.leaving_has_expired();
      } else {
        one->expire();
      }
    }
  }
  /// At the end of the negotiation; the backend closes all at once.
  void release_all() {
    ended_.clear();
    for (const auto& [set, one] : views_) one->release();
  }

 private:
  /// Those of a communicator: what one of its ranks finds, all do. False if there are none, because
  /// this rank has an empty one, or with an error.
  bool find_members(task& one, creation& record) {
    const communicator like = *std::exchange(record.like, std::nullopt);
    if (!like) return false;
    try {
      if (const errc bad = log_.source.usable(); bad != errc{}) throw error(bad, "add_process_set");
      const mpi::comm& theirs = like.state()->data;
      if (theirs.is_inter()) {
        throw error(errc::invalid_communicator, "add_process_set: an intercommunicator");
      }
      const mpi::group all = log_.parent.state()->data.group();
      const auto found = theirs.group().translate(ranks::all(theirs.size()), all);
      const auto stranger = std::find(found.begin(), found.end(), -1);
      if (stranger != found.end()) {
        throw error(errc::bad_rank, "add_process_set: rank " +
                                        std::to_string(stranger - found.begin()) +
                                        " of the communicator is no rank of the coordinator");
      }
      record.members = ranks(found);
    } catch (...) {
      one.fail(std::current_exception());
      return false;
    }
    return true;
  }
  /// Makes the communicator of a process set with the other members. `own` is gone once this
  /// negotiation is broken.
  [[nodiscard]] progress::look_task<> make_with_others(task& own) {
    auto making = comm::joint::create(
        log_.slots,
        [&](mpi::comm base) {
          if (log_.faults.broken) return base.keep();  // others may use it
          try {
            made_with_others(own, std::move(base));
          } catch (...) {
            failed(own, std::current_exception());
          }
        },
        static_cast<creation*>(own.context)->members);
    co_await making;
  }
  /// There is no memory to begin. The others wait for this rank in the creation, and would take its
  /// part in the next creation for this one. So all that remains is to end them all.
  void not_made(task& one, const std::exception_ptr& why) {
    failed(one, why);
    try {
      std::rethrow_exception(why);
    } catch (const std::bad_alloc&) {
      log_.faults.break_down(why);
    } catch (...) {  // MPI's, which the others have as well
    }
  }
  void made_with_others(task& own, mpi::comm base);
  void failed(task& one, std::exception_ptr why) {
    one.fail(std::move(why));
    const std::uint32_t number = static_cast<creation*>(one.context)->number;
    if (number != 0) {
      unplace(number);
      log_.life.leave(number, protocol::departure::abandoned);
    }
    log_.tasks.complete(one);
    log_.touch();  // for the next set
  }
  [[nodiscard]] coordinator_options options_of_sets() const {  // but files are the coordinator's
    coordinator_options options = whole().options();  // the numbers of all members are the same
    options.tune = false;
    options.tune_file.clear();
    options.timeline.clear();
    options.frozen_plan.clear();
    return options;
  }
  void make_apart(creation& one, mpi::comm data) {
    mpi::comm exchange = data.dup();
    mpi::comm slot = data.dup();
    mpi::comm other_slot = data.dup();
    communicator control = communicator::adopt(log_.control, std::move(data), std::move(exchange));
    communicator slots = communicator::adopt(log_.control, std::move(slot), std::move(other_slot));
    auto made =
        std::make_shared<negotiation<Any>>(control, options_of_sets(), nullptr, nullptr, one);
    made->recording.events = log_.recording.events;
    asio::use_service<progress::kept_until_closed<negotiation<Any>>>(log_.engine.context())
        .add(made);
    log_.source.watch(*made);
    one.made = std::make_shared<instance_handle>(made->handle_of(made->sets.whole()));
    made->control = std::move(control);
    made->opening.set_made(std::move(slots));
  }
  /// All members are here; the set exists in the log, with a number. It can be used when the
  /// backend for devices is open, too.
  void make_within(task& own, creation& record, mpi::comm shared) {
    mpi::comm slot = shared.dup();
    mpi::comm second = shared.dup();
    mpi::comm data = shared.dup();
    mpi::comm exchange = shared.dup();
    communicator host = communicator::adopt(log_.control, std::move(shared), std::move(slot));
    communicator over = communicator::adopt(log_.control, std::move(data), std::move(exchange));
    auto made = std::make_unique<set_view<Any>>(log_, host, options_of_sets(), record);
    made->take(std::move(host), std::move(second), std::move(over));
    made->opening = true;
    made->maker = &own;
    made_ = views_.emplace(record.number, std::move(made)).first->second.get();
    open_made();
  }
  void open_made() {
    if (unplaced_ == 0)
      log_.device.open(*std::exchange(made_, nullptr));  // else `place` comes back
  }
  /// That place is not needed: the set has not been made.
  void unplace(std::uint32_t set) {
    if (unplaced_ == set) {
      unplaced_ = 0;
      log_.plane.hold_nothing();
    } else if (!views_.contains(set)) {
      log_.device->close(set);
    }
  }

  negotiation<Any>& log_;
  std::map<std::uint32_t, std::unique_ptr<set_view<Any>>> views_;
  std::vector<task*> adding_;        // between their two stages
  std::vector<task*> making_;        // agreed upon by all their members
  set_view<Any>* made_ = nullptr;    // to be opened when it has its place
  std::uint32_t unplaced_ = 0;       // the set that has none yet
  task* confirmed_ = nullptr;        // the only one on devices that is confirmed and not open
  std::deque<std::uint32_t> ended_;  // in the order of the log
};

template <class Any>
void set_list<Any>::made_with_others(task& one, mpi::comm base) {
  auto& record = *static_cast<creation*>(one.context);
  if (record.number != 0) {
    make_within(one, record, std::move(base));  // which completes it
  } else {
    make_apart(record, std::move(base));
    // Nobody here will have it: the others hear of that now.
    if (!one.linked || log_.life.abandoned) (**record.made).leave(protocol::departure::abandoned);
    log_.tasks.complete(one);
  }
}

}  // namespace cohort::coordination
