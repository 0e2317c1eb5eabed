// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How a negotiation ends on this rank: leaving, waiting for the others, letting go, and
/// giving up where nobody decides. A negotiation enters the room `life` as communicators that are
/// to be made, and leaves it closed.

#include <cohort/coordinator/data/stand_in.hpp>
#include <cohort/coordinator/sets/set_view.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/context.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace cohort::coordination {

/// For what is still on its way inside MPI when nothing more is started.
inline constexpr std::chrono::milliseconds settling_time{200};

/// A negotiation is being opened, then open, then closed, once; it closes when all ranks have left
/// and nothing of it is under way here, or when it has broken down.
template <class Any>
class lifetime {
 public:
  explicit lifetime(negotiation<Any>& log) noexcept : log_(log) {}

  enum class stage : std::uint8_t { opening, open, closed };
  [[nodiscard]] bool has_opened() const noexcept { return stage_ != stage::opening; }
  [[nodiscard]] bool closed() const noexcept { return stage_ == stage::closed; }
  void opened() noexcept { stage_ = stage::open; }

  bool abandoned = false;    ///< the context goes away
  bool keeps = false;        ///< MPI still works on what this negotiation has
  std::size_t openings = 0;  ///< of this negotiation and of sets, inside MPI

  /// Who leaves set 0 leaves all that is agreed upon.
  void leave(std::uint32_t set, protocol::departure how, std::string_view why = {}) {
    if (log_.faults.broken || (set != 0 && log_.sets.whole().left)) return;
    try {
      if (set == 0) {
        log_.node.leave(how, why);
      } else {
        log_.node.leave_set(set, how, why);
      }
    } catch (...) {
      return log_.faults.break_down(std::current_exception());
    }
    if (!has_opened()) return;
    log_.stay_awake();
    log_.touch();
  }
  /// The others may still come; this rank goes on serving them while its loop runs. [protocol L6]
  void leaving_has_expired() {
    process::missing.fetch_add(1);
    const std::string besides = "; its communicators are kept";
    log::write(log::level::error, log_.sets.whole().not_left_in_time() + besides);
    log_.sets.whole().expire(besides);
    log_.stay_awake();
  }
  void check_released() {
    if (!log_.faults.broken && !(has_opened() && log_.node.released())) return;
    if (log_.sets.whole().opening) return;
    if (!log_.faults.broken && !log_.faults.of_all() && log_.sets.opens()) {
      if (!abandoned) return;
      // The other ranks wait for it, and it goes on in the looks; but not for ever.
      if (log_.device.may_open_at(clock::now())) return log_.source.at_next_look(log_);
      log_.device.fail();  // what it works on stays
      keeps = true;
    }
    if (log_.faults.of_all() && !log_.faults.broken) {
      if (log_.node.shape().is_root()) log_.faults.settle();
      if (!log_.faults.settled()) return;
    }
    if (log_.plane.under_way() != 0 || log_.plane.waiting() != 0) return;
    if (log_.groups.under_way()) return;
    if (log_.neighbours.channel.sending()) return;
    if (log_.neighbours.settles_some() && !log_.faults.broken) return;
    log_.neighbours.channel.close();
    if (openings == 0 && log_.neighbours.channel.operations() == 0 && !closed()) close();
  }
  /// For destructors, outside the loop.
  void end_in_place() {
    // While another thread runs the loop, nothing of ours may be read.
    if (log_.engine.is_in_handler() || !log_.engine.context().stopped() || closed() ||
        !has_opened()) {
      return;
    }
    log_.engine.drive_until(
        [this] { return closed(); },
        std::min<std::chrono::nanoseconds>(log_.engine.drain_bound(),
                                           log_.sets.whole().leave_until - clock::now()));
  }
  void abandon() {
    log_.sets.whole().leave(protocol::departure::abandoned);
    abandoned = true;
    // Called for all negotiations of the context before the first is driven: so they are waited for
    // together, and no longer than for one. One that has waited already only takes in what is
    // there.
    const auto at = clock::now();
    clock::time_point& until = log_.sets.whole().leave_until;
    until = std::min(std::max(until, at + settling_time), at + log_.engine.drain_bound());
  }
  void drive() {
    if (log_.engine.drive_until([this] { return closed(); },
                                log_.sets.whole().leave_until - clock::now()))
      return;
    const comm::request_source::guard hold(log_.source);
    if (log_.faults.broken) return;
    if (!log_.sets.whole().leave_expired) leaving_has_expired();
    if (!has_opened()) return;  // the engine may see it through
    // The engine ends the receives next. That must not be taken for a lost connection.
    log_.faults.break_down(
        std::make_exception_ptr(error(errc::stalled, log_.sets.whole().not_left_in_time())), true);
    log_.neighbours.channel.close();
  }

 private:
  void close() {
    stage_ = stage::closed;
    if (log_.sets.whole().leave_expired && !log_.faults.broken)
      process::missing.fetch_sub(1);                       // they have come after all
    if (log_.sets.whole().id == 0) log_.recording.stop();  // it is the coordinator's
    log_.source.forget(log_);
    if (!log_.faults.broken)
      log_.sets.release_ended();  // first, as on ranks that have looked since the log said so
    log_.device.close();
    if (keeps) {
      leave_to_mpi();
    } else {
      log_.groups.clear();
    }
    log_.control = communicator();
    log_.slots = communicator();
    log_.sets.release_all();
  }
  // MPI may free a communicator under what still goes on there, and freeing is collective: after a
  // fault no rank does.
  void leave_to_mpi() {
    progress::left_to_mpi().add(log_.shared_from_this());
    for (const communicator& each : {log_.control, log_.slots}) {
      if (each) each.state()->keep();
    }
    log_.sets.for_each([](set_view<Any>& each) { each.leave_to_mpi(); });
    log_.groups.leave_to_mpi();
    log_.parent = communicator();
  }

  negotiation<Any>& log_;
  stage stage_ = stage::opening;
};

/// Watches how long what this rank has withdrawn waits for the decision, and leaves at the end.
template <class Any>
class decision_watch {
 public:
  explicit decision_watch(negotiation<Any>& log) noexcept : log_(log) {}
  // Nobody decides, because a rank between here and the root is stopped or computes. Only time in
  // which this rank looked for messages counts: after a long handler they may be there already.
  // [protocol W4]
  void watch(clock::time_point at) {
    const auto step = std::min<std::chrono::nanoseconds>(at - std::exchange(last_tick_, at),
                                                         std::chrono::milliseconds(100));
    if (log_.node.shape().is_root()) return;
    std::chrono::nanoseconds longest{0};
    log_.tasks.for_each([&](task& each) {
      if (!each.withdrawn || each.started || log_.sets.is_between(each)) return;
      each.undecided += step;
      longest = std::max(longest, each.undecided);
    });
    if (longest > log_.options.decision_timeout / 2 &&
        asked_ + log_.options.decision_timeout < at) {
      asked_ = at;
      log_.neighbours.ping_parent();
      log_.touch();
    }
    if (longest > log_.options.decision_timeout) give_up();
  }

 private:
  void give_up() {
    const int parent = log_.node.shape().parent();
    const bool answers = log_.neighbours.answered() >= asked_;
    const std::string text =
        ": no decision within " +
        std::to_string(
            std::chrono::duration_cast<std::chrono::milliseconds>(log_.options.decision_timeout)
                .count()) +
        " ms; rank " + std::to_string(parent) +
        (answers ? ", this rank's parent, answers, so it is a rank beyond it that does not"
                 : ", this rank's parent, does not answer");
    stall_facts facts;
    if (!answers) facts.silent.push_back(parent);
    // What is elected all the same needs this rank's data, and the buffers are the caller's.
    log_.tasks.for_each([&](task& each) {
      if (each.started) return;
      std::string what = "join";
      if (each.name == protocol::none) {
        each.view->joining = nullptr;
      } else {
        what = std::string(each.verb()) + " '" + std::string(log_.tasks.given_name(each)) + "'";
        // A set between its stages is not confirmed: it ends everywhere when this rank has left.
        if (!log_.sets.forget(each)) {
          log_.node.replace_token(each.operation_ref,
                                  reinterpret_cast<std::uint64_t>(stand_in_for(log_, each)));
        }
      }
      each.fail(std::make_exception_ptr(
          deadline_error(facts, "rank " + std::to_string(log_.rank) + ": " + what + text)));
      log_.tasks.complete(each);
    });
    log::write(log::level::error,
               "rank " + std::to_string(log_.rank) + ": coordinator" + text + "; this rank leaves");
    set_view<Any>& whole = log_.sets.whole();
    whole.left = true;
    whole.leave_until = clock::now() + log_.options.leave_deadline;
    log_.node.give_up();
    log_.touch();
  }

  negotiation<Any>& log_;
  clock::time_point last_tick_{};
  clock::time_point asked_{};  // when the parent was asked for a sign of life
};

}  // namespace cohort::coordination
