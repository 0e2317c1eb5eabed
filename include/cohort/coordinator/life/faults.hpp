// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What has gone wrong for good: a data operation anywhere, or this rank's part in agreeing.

#include <cohort/coordinator/data/data_plane.hpp>
#include <cohort/coordinator/life/lifetime.hpp>
#include <cohort/coordinator/sets/set_view.hpp>
#include <cohort/core/process.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <system_error>

namespace cohort::coordination {

/// Two things end a negotiation before its time, and there is no way back from either.
///
/// A *fault*: a data operation *fails* on some rank: that ends the negotiation on all. Each rank
/// closes, which means that it starts nothing more, and gives up what may never end.
///
/// A rank *breaks down*: it can agree on nothing any more, because a message cannot be sent or is
/// none of the protocol, say. It tells its neighbours.
template <class Any>
class fault_handling {
 public:
  explicit fault_handling(negotiation<Any>& log) noexcept : log_(log) {}

  /// How far a fault has come, in this order.
  enum class stage : std::uint8_t {
    none,
    known,    ///< a data operation has failed, here or elsewhere
    of_all,   ///< by the log, so all ranks hear of it
    settled,  ///< all have learned it: none starts anything any more
  };
  [[nodiscard]] bool any() const noexcept { return stage_ != stage::none; }
  [[nodiscard]] bool of_all() const noexcept { return stage_ >= stage::of_all; }
  [[nodiscard]] bool settled() const noexcept { return stage_ == stage::settled; }

  std::optional<protocol::verdict> first;  ///< of the first failure that is known here
  std::exception_ptr broken;               ///< why this rank has broken down
  std::exception_ptr to_break;  ///< why it will, unless the device that is being opened says why
  int lost = -1;                ///< the rank that has broken down first, as far as is known

  /// The log has closed by a fault.
  void log_closed(const protocol::verdict& why) {
    if (!first) first = why;
    stage_ = std::max(stage_, stage::of_all);
    log_.life.keeps = true;
    close();
  }
  /// Nothing can be negotiated here any more. `known`: the log has it, and the others that this
  /// rank leaves.
  void break_down(const std::exception_ptr& why, bool known = false) {
    const comm::request_source::guard hold(log_.source);
    if (broken) return;
    // Where a device cannot be opened all ranks hear of it, but a rank may hear first that another
    // one has ended.
    if (log_.sets.whole().opening) {
      if (!to_break) to_break = why;
      return;
    }
    broken = why;
    try {
      if (!known) std::rethrow_exception(why);
    } catch (const std::exception& problem) {
      log::write(log::level::error, problem.what());
    } catch (...) {
    }
    log_.tasks.fail_all(why);
    log_.sets.break_down(why);
    close();
    log_.recording.events->instant("fault", log_.now());
    tools::mark(tools::category::event, tools::literal("fault"));
    if (log_.life.has_opened()) {
      log_.life.keeps = true;  // others may still send to this rank
      try {
        if (!known) log_.neighbours.announce_broken();
      } catch (...) {  // no memory: they find out by themselves
      }
    }
    log_.neighbours.channel.give_up();
    log_.neighbours.channel.close();
    log_.life.check_released();
  }
  // After a fault, what is elected and has not started here will never run. What has started goes
  // on with the parts that are posted. A pack that was being filled in when memory ran out may have
  // no task yet.
  void close() {
    if (execution* const pack = log_.performer.take_pack()) {
      end(*pack, false);
      log_.plane.recycle(*pack);
    }
    log_.sets.end_makers(nullptr);
    const auto drop = [this](execution& one) { end(one, false); };
    log_.plane.drop_waiting(drop);
    log_.device.fail();
    if (!broken) log_.plane.post_no_more(errc::data_operation_failed);
    log_.groups.for_each_plane([&](data_plane& each) {
      each.drop_waiting(drop);
      if (!broken) each.post_no_more(errc::data_operation_failed);
    });
    log_.groups.fail_held();
  }
  /// All ranks have closed after a fault, so none starts anything any more.
  void settle() {
    if (settled()) return;
    stage_ = stage::settled;
    log_.neighbours.settle_children();
    try {
      log_.neighbours.flush();
    } catch (...) {
      break_down(std::current_exception());
    }
  }
  /// A data operation has failed here; MPI may still work on parts of it. The other ranks hear of
  /// it now, not when these parts end, for a part may end only when the others have posted theirs.
  void failing(execution& what, std::error_code why) noexcept {
    if (any() || broken) return;
    const std::string_view verb = what.is_join ? "join" : what.tasks.front()->verb();
    const std::string cause =
        std::string(verb) + " #" + std::to_string(what.log_count) + ": " + why.message();
    const std::string text =
        "rank " + std::to_string(log_.rank) + ": " + cause + log_.device.undefined();
    log::write(log::level::error, text);
    for (task* each : what.tasks) {
      if (each->linked) each->fail(std::make_exception_ptr(data_error({log_.rank}, text)));
    }
    first.emplace();
    first->kind = protocol::failure_kind::data;
    first->rank = log_.rank;
    first->text = cause;
    log_.node.data_failed(cause);
    stage_ = std::max(stage_, stage::known);
    close();
    log_.touch();
  }
  /// The same where MPI has no part of it any more: its tasks end, too.
  void failed(execution& what, std::error_code why) noexcept {
    failing(what, why);
    end(what, false);
    if (broken) log_.touch();  // leaving may have waited for this operation alone
  }
  /// What a task ends with after a fault, or after this rank has broken down.
  [[nodiscard]] std::exception_ptr error_for(const task& one) const {
    if (broken) return broken;
    if (one.name == protocol::none) return log_.reports.error_of(*one.view, "join", "join", *first);
    return log_.reports.error_of(*one.view, log_.tasks.given_name(one), one.verb(), *first);
  }
  // What others have posted and the rank that failed has not, never ends. Its awaiters end here: at
  // once, where MPI works on memory of the library; where it may write to that of callers, when no
  // rank can start its part any more and what was on its way has had time to arrive. If some rank
  // does not even close, a late message of it could be written to memory that is gone, and the job
  // ends.
  void watch(clock::time_point at) {
    if ((!any() && !broken) || log_.life.closed() || under_way() == 0) return;
    if (until_ == clock::time_point::max()) until_ = at + log_.engine.drain_bound();
    if (settled()) settled_at_ = std::min(settled_at_, at);
    const bool all_closed = settled() && at - settled_at_ >= settling_time;
    if (any() || at >= until_) give_up_data(all_closed, at >= until_);
    if (under_way() == 0 || at < until_) return;
    std::string text =
        "coordinator: a data operation has failed on some rank, not all ranks have closed since, "
        "and "
        "these did not end:";
    const auto name = [&](const execution& one) {
      for (const task* each : one.tasks) {
        text += "\n  " + std::string(each->verb()) + " #" + std::to_string(one.log_count);
        if (each->name != protocol::none)
          text += " '" + std::string(log_.tasks.given_name(*each)) + "'";
      }
    };
    log_.plane.for_each_under_way(name);
    log_.groups.for_each_plane([&](data_plane& each) { each.for_each_under_way(name); });
    process::end_job(text);
  }

 private:
  /// The memory of what nobody awaits stays where MPI still works on it.
  void end(execution& what, bool given_up) {
    for (task* each : what.tasks) {
      if (each->linked) {
        each->fail(error_for(*each));
        log_.tasks.complete(*each);
      } else if (!given_up) {
        each->destroy();
      }
    }
  }
  [[nodiscard]] std::size_t under_way() const noexcept {
    std::size_t all = log_.plane.under_way();
    log_.groups.for_each_plane([&](const data_plane& each) { all += each.under_way(); });
    return all;
  }
  // A collective that a rank has not joined never ends, and MPI cannot be told to forget it.
  void give_up_data(bool all, bool devices) {
    const std::size_t before = under_way();
    const auto forget = [this](execution& one) { end(one, true); };
    log_.plane.give_up(all, devices, forget);
    log_.groups.for_each_plane([&](data_plane& each) { each.give_up(all, devices, forget); });
    if (under_way() == before) return;
    log_.life.keeps = true;
    log_.touch();
    log_.life.check_released();
  }

  negotiation<Any>& log_;
  stage stage_ = stage::none;
  clock::time_point until_ = clock::time_point::max();
  clock::time_point settled_at_ = clock::time_point::max();
};

}  // namespace cohort::coordination
