// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What awaiters and the log of the program are told: errors, who waits for whom, stalls.

#include <cohort/coordinator/log/submissions.hpp>
#include <cohort/coordinator/sets/set_view.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/polled_source.hpp>
#include <cohort/protocol/validation.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// Turns what the node knows into errors, lists and lines of text. Ranks in them have the numbers
/// of the set that is told.
template <class Any>
class reports_of {
 public:
  explicit reports_of(negotiation<Any>& log) noexcept : log_(log) {}

  /// `own`: why this rank has withdrawn it, if it has.
  [[nodiscard]] std::exception_ptr error_of(const set_view<Any>& set, std::string_view name,
                                            std::string_view verb, const protocol::verdict& told,
                                            std::optional<protocol::withdrawal_reason> own = {},
                                            const char* besides = "") const {
    using protocol::failure_kind;
    const protocol::verdict why = set.inside(told);
    const int rank = set.rank();
    std::string text = "rank " + std::to_string(rank) + ": " + std::string(verb) + " " +
                       describe(name, why) + besides;
    stall_facts facts{why.ready.list(), why.missing.list(), why.silent.list(), why.unknown.list()};
    switch (why.kind) {
      case failure_kind::mismatch: {
        std::vector<std::string> fields;
        std::vector<mismatch_error::side> sides;
        for (const protocol::side& each : why.sides) {
          sides.push_back({each.ranks.list(), {}, each.site.str()});
        }
        for (const protocol::difference& one : protocol::differences(why.sides)) {
          fields.push_back(one.field);
          for (std::size_t i = 0; i < sides.size(); ++i) sides[i].values.push_back(one.values[i]);
        }
        if (fields.empty()) fields.emplace_back("signature");
        return std::make_exception_ptr(mismatch_error(std::move(fields), std::move(sides), text));
      }
      case failure_kind::withdrawn:
        if (own) {
          using protocol::withdrawal_reason;
          if (why.rank != rank) text += "; this rank withdrew it too";
          switch (*own) {
            case withdrawal_reason::cancelled:
              return std::make_exception_ptr(
                  std::system_error(asio::error::operation_aborted, text));
            case withdrawal_reason::duplicate:
              return std::make_exception_ptr(error(errc::duplicate_name, text));
            case withdrawal_reason::invalid:
              return std::make_exception_ptr(error(errc::invalid_argument, text));
            case withdrawal_reason::deadline:
            case withdrawal_reason::no_decision:
              return std::make_exception_ptr(deadline_error(std::move(facts), text));
          }
        }
        return std::make_exception_ptr(withdrawn_error(
            why.rank, std::string(protocol::name_of(why.reason)), std::move(facts), text));
      case failure_kind::joined:
        return std::make_exception_ptr(joined_error(why.ranks.list(), text));
      case failure_kind::peer_lost:
        return std::make_exception_ptr(peer_lost_error(why.ranks.list(), text));
      case failure_kind::data:
        return std::make_exception_ptr(data_error({why.rank}, text + log_.device.undefined()));
    }
    return std::make_exception_ptr(error(errc::data_operation_failed, text));
  }
  [[nodiscard]] std::vector<pending_operation> pending_in(const set_view<Any>& set) const {
    std::vector<pending_operation> all;
    const auto at = clock::now();
    log_.tasks.for_each([&](const task& one_task) {
      const task* const each = &one_task;
      if (each->view != &set) return;
      pending_operation& one = all.emplace_back();
      one.started = each->started;
      one.age = at - each->submitted;
      const auto asked = [&](const rank_set& ready, const rank_set& missing) {
        one.asked = true;
        one.ready = set.inside(ready).list();
        one.missing = set.inside(missing.without(ready)).list();
        rank_set unknown = last_.silent;
        unknown.unite(last_.unknown);
        one.unknown = set.inside(unknown).list();
      };
      if (each->name == protocol::none) {
        one.name = one.verb = join_verb;
        for (const auto& [which, joined] : last_.joined) {
          if (which != set.place.set || !joined.contains(log_.rank))
            continue;  // older than this rank's own
          asked(joined,
                rank_set::span(0, log_.size - 1).without(last_.silent).without(last_.unknown));
        }
        return;
      }
      const std::string& full_name = log_.node.name(each->name).text;
      one.name = protocol::own_name(full_name);
      one.verb = each->verb();
      for (const protocol::stall_report_row& row : last_.rows) {
        if (row.set != set.place.set || row.name != full_name || row.number != each->epoch ||
            row.ready.empty()) {
          continue;
        }
        rank_set ready;
        for (const protocol::side& side : row.ready) ready.unite(side.ranks);
        one.shape = row.ready.front().sig.dimensions.str();
        one.site = row.ready.front().site.str();
        asked(ready, row.missing);
      }
    });
    return all;
  }
  void list_waiting(std::string& text, clock::time_point at) const {
    constexpr std::size_t most = 15;  // of the 16 of process::give_up
    std::size_t lines = 0;
    const auto line = [&](const task& one, const std::string& what, const char* state) {
      if (++lines > most) return;
      text += "  rank " + std::to_string(one.view->rank()) + ": " + what + ", " +
              progress::pending_age(one.submitted).text(at) + state + "\n";
    };
    log_.tasks.for_each([&](const task& each) {
      std::string what = join_verb;
      if (each.name != protocol::none) {
        what = each.verb();
        if (const std::string_view name = log_.tasks.given_name(each); !name.empty()) {
          what += " '" + std::string(name) + "'";
        }
      }
      line(each, what, each.started ? ", elected" : log_.life.has_opened() ? "" : not_open);
    });
    log_.sets.for_each([&](const set_view<Any>& one) {
      for (const task* each : one.closing) {
        line(*each, one.is_whole() ? "shutdown of a coordinator" : "shutdown of a process set", "");
      }
    });
    if (lines > most) text += "  and " + std::to_string(lines - most) + " more\n";
  }
  void request_report() {
    const comm::request_source::guard hold(log_.source);
    if (log_.faults.broken || !log_.life.has_opened()) return;
    if (log_.node.request_report(nanoseconds(clock::now()))) log_.touch();
  }
  void report(const protocol::stall_report& what) {
    last_ = what;
    std::string text;
    std::vector<pending_operation> waiting;
    log_.sets.for_each([&](const set_view<Any>& each) {
      for (pending_operation& one : pending_in(each)) waiting.push_back(std::move(one));
    });
    for (const pending_operation& one : waiting) {
      if (!one.asked || one.started || one.age < log_.options.stall_warning) continue;
      const auto list = [](const std::vector<int>& ranks) {
        rank_set set;
        for (const int rank : ranks) set.insert(rank);
        return ranks.empty() ? std::string("none") : set.str();
      };
      text += "\n  " + one.verb;
      if (one.verb != join_verb) text += " '" + one.name + "' " + one.shape + " (" + one.site + ")";
      text +=
          ", " +
          std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(one.age).count()) +
          " ms; ready: " + list(one.ready) + "; missing: " + list(one.missing);
      if (!one.unknown.empty()) text += "; unknown: " + list(one.unknown);
    }
    warn_stalled(text);
  }
  /// This rank joins: what was told of an earlier join is over.
  void forget_joins() noexcept { last_.joined.clear(); }
  void watch_stalls(clock::time_point at) {
    const auto patience = log_.options.stall_warning;
    if (patience <= std::chrono::nanoseconds::zero()) return;
    const task* const oldest = log_.tasks.oldest_undecided();
    if (oldest == nullptr || at - oldest->submitted <= patience || at - warned_ <= patience) return;
    warned_ = at;
    if (!log_.life.has_opened()) {
      std::string lines = "\n";
      list_waiting(lines, at);
      lines.pop_back();
      warn_stalled(lines);
    } else if (log_.node.request_report(nanoseconds(at))) {
      log_.touch();
    }
  }
  // A pack of the frozen plan that has waited for too long goes without its missing members, and
  // the plan is over: sums are no longer the same from run to run. [protocol R4]
  void watch_plan(clock::time_point at) {
    if (log_.options.plan_patience <= std::chrono::nanoseconds::zero() ||
        log_.options.frozen_plan.empty() || !log_.node.shape().is_root()) {
      return;
    }
    const std::vector<std::string> awaited = log_.node.plan_awaits();
    if (awaited.empty()) {
      plan_waits_since_ = clock::time_point::max();
      return;
    }
    plan_waits_since_ = std::min(plan_waits_since_, at);
    if (at - plan_waits_since_ < log_.options.plan_patience) return;
    std::string text = "rank 0: coordinator: the frozen plan is given up; it waits for";
    for (const std::string& name : awaited) text += " '" + name + "'";
    log::write(log::level::warning, text);
    if (log_.node.give_up_plan()) log_.touch();
  }

 private:
  /// Each line begins with a line break.
  void warn_stalled(const std::string& lines) {
    if (lines.empty() || log_.options.stall_warning <= std::chrono::nanoseconds::zero()) return;
    log_.recording.events->instant("stall warning", log_.now());
    tools::mark(tools::category::event, tools::literal("stall warning"));
    log::write(log::level::warning,
               "rank " + std::to_string(log_.rank) + ": coordinator stalled:" + lines);
  }

  negotiation<Any>& log_;
  protocol::stall_report last_;
  clock::time_point warned_{};
  clock::time_point plan_waits_since_ = clock::time_point::max();
};

}  // namespace cohort::coordination
