// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of coordinator/negotiation.hpp: how tasks enter and end, and reports. The others
/// are in the files included at the end.

#include <cohort/coordinator/negotiation.hpp>

#include <cohort/coordinator/detail/compress.hpp>
#include <cohort/core/log.hpp>

#include <algorithm>
#include <utility>

namespace cohort::coordination {

/// For what is then still on its way inside MPI.
inline constexpr std::chrono::milliseconds settling_time{200};
inline constexpr std::size_t longest_name = 65535;
/// The token of an operation that has ended here before it was decided.
inline constexpr std::uint64_t nobody = 1;

inline constexpr const char* join_verb = "join";
inline constexpr const char* not_open = ", the coordinator is not open on all ranks";

[[nodiscard]] COHORT_INLINE task* task_of(std::uint64_t token) noexcept {
  return token == nobody ? nullptr : reinterpret_cast<task*>(token);
}

// ---- tasks --------------------------------------------------------------------------------------

template <class Any>
void negotiation<Any>::link(task& one) noexcept {
  one.before = last_;
  one.after = nullptr;
  (last_ == nullptr ? first_ : last_->after) = &one;
  last_ = &one;
  one.linked = true;
}

template <class Any>
void negotiation<Any>::unlink(task& one) noexcept {
  (one.before == nullptr ? first_ : one.before->after) = one.after;
  (one.after == nullptr ? last_ : one.after->before) = one.before;
  one.linked = false;
}

template <class Any>
void negotiation<Any>::complete(task& one) noexcept {
  if (one.linked) {
    unlink(one);
    if (one.holds_name) node_.let_go(one.name);
    if (one.deadline != clock::time_point::max()) --deadlines_;
    if (options_.strict && one.name != protocol::none) {
      if (const auto used = in_use_.find(one.name); used != in_use_.end()) {
        if (--used->second == 0) in_use_.erase(used);
      }
    }
  }
  if (confirmed_ == &one) confirmed_ = nullptr;
  one.watched.end();
  coordinator_statistics& counted = one.view->counted;
  ++(one.error ? counted.failed : counted.completed);
  ++completed_;
  if (first_ == nullptr) stay_awake();
  engine_.complete(&one);
}

template <class Any>
std::exception_ptr negotiation<Any>::refusal(std::string_view name) const {
  return std::make_exception_ptr(error(
      errc::not_accepting, "rank " + std::to_string(rank_) + ": '" + std::string(name) + "'"));
}

template <class Any>
void negotiation<Any>::submit(task& one, std::string_view name, const protocol::signature& sig,
                              const std::source_location& site, std::chrono::nanoseconds deadline) {
  if (one.wanted != compression::none) {
    protocol::signature wire = sig;
    compress<Any>(one, name, wire);
    return submit(one, name, wire, site, deadline);
  }
  if (one.space != memory_space::host) {
    if (std::string places = find_places(one); places != sig.places) {
      protocol::signature placed = sig;
      placed.places = std::move(places);
      return submit(one, name, placed, site, deadline);
    }
    if (!one.error) admit(one, name, sig);
  }
  {
    const comm::request_source::guard hold(source_);
    ++one.view->counted.submitted;
    errc bad = source_.usable();
    if (bad == errc{} && engine_.stopped()) bad = errc::engine_stopped;
    if (bad != errc{}) {
      one.fail(std::make_exception_ptr(error(bad, "'" + std::string(name) + "'")));
    } else if (broken_) {
      one.fail(broken_);
    } else if (name.size() > longest_name || (!name.empty() && name.front() == '\x01')) {
      one.fail(std::make_exception_ptr(
          error(errc::invalid_argument,
                name.size() > longest_name
                    ? "a name of " + std::to_string(name.size()) + " bytes, more than 65535"
                    : std::string("a reserved name"))));
    } else if (sig.kind == op_kind::message && !check_peer(one, name)) {
      // It has no other end that could hear of it.
    } else {
      site_.file.assign(site.file_name());
      site_.line = site.line();
      const auto as = reinterpret_cast<std::uint64_t>(&one);
      const std::uint32_t set = one.view->place.set;
      const auto result = sig.kind == op_kind::message
                              ? node_.submit(set, pair_name(one, name), sig, as, one.sizes, &site_)
                              : node_.submit(set, name, sig, as, one.sizes, &site_);
      one.name = result.name;
      one.epoch = result.number;
      if (result.status == protocol::submission_status::pending) {
        one.operation_ref = result.operation;
        one.submitted = now();
        one.watched.begin(tools::category::negotiate, {name}, sig.bytes());
        link(one);
        if (deadline > std::chrono::nanoseconds::zero()) {
          one.deadline = clock::now() + deadline;
          ++deadlines_;
        }
        const bool duplicate = options_.strict && !name.empty() && ++in_use_[one.name] > 1;
        if (one.error) {
          node_.withdraw(one.operation_ref, protocol::withdrawal_reason::invalid);
        } else if (duplicate) {
          node_.withdraw(one.operation_ref, protocol::withdrawal_reason::duplicate);
        }
        if (!ready_) {
          if (!node_.actions().empty()) perform();  // the root has failed it at once
          return;
        }
        source_.at_next_look(*this);
        stay_awake();
        unsent_ += sig.bytes();
      } else if (result.status == protocol::submission_status::failed) {
        one.fail(error_of(*one.view, name, one.verb(), *result.why));
        complete(one);
        return;
      } else {
        one.fail(refusal(name));
        complete(one);
        return;
      }
    }
    if (!one.linked) {
      complete(one);
      return;
    }
    // What fills a pack is told at once: of a burst the beginning moves while the rest is named.
    if (unsent_ >= options_.fusion_buffer) at_look();
  }
  engine_.started();
}

/// Both ends of a message find each other under this name. Its ranks are those of the node.
template <class Any>
std::string negotiation<Any>::pair_name(const task& one, std::string_view name) const {
  const int peer = one.view->outside(one.peer);
  return one.sends ? protocol::message_name(rank_, peer, name)
                   : protocol::message_name(peer, rank_, name);
}

template <class Any>
bool negotiation<Any>::check_peer(task& one, std::string_view name) const {
  const instance& where = *one.view;
  const bool is_rank = one.peer >= 0 && one.peer < where.size();
  if (is_rank && one.peer != where.rank()) return true;
  one.fail(std::make_exception_ptr(
      error(is_rank ? errc::invalid_argument : errc::bad_rank,
            "rank " + std::to_string(where.rank()) + ": " + std::string(one.verb()) + " '" +
                std::string(name) + "': " + (one.sends ? "to_rank=" : "from_rank=") +
                std::to_string(one.peer) +
                (is_rank ? " is this rank" : ", ranks=" + std::to_string(where.size())))));
  return false;
}

/// As the caller has given it.
template <class Any>
std::string_view negotiation<Any>::given_name(const task& one) const {
  return protocol::own_name(node_.name(one.name).text);
}

template <class Any>
void negotiation<Any>::join(task& one) {
  {
    const comm::request_source::guard hold(source_);
    ++one.view->counted.submitted;
    if (broken_) {
      one.fail(broken_);
      return complete(one);
    }
    const auto result = node_.join(one.view->place.set, 1);
    if (result.status == protocol::submission_status::pending) {
      one.view->joining = &one;
      last_report_.joined.clear();  // to an earlier join
      one.submitted = now();
      one.watched.begin(tools::category::negotiate, tools::literal("join"));
      link(one);
      if (ready_) source_.at_next_look(*this);
    } else if (result.status == protocol::submission_status::failed) {
      one.fail(error_of(*one.view, "join", "join", *result.why));
      return complete(one);
    } else {
      one.fail(refusal("join"));
      return complete(one);
    }
    stay_awake();
  }
  engine_.started();
}

template <class Any>
void negotiation<Any>::stop_joining(task& one) {
  const comm::request_source::guard hold(source_);
  if (one.view->joining != &one) return;
  one.view->joining = nullptr;
  one.fail(std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
  complete(one);
  stay_awake();
}

template <class Any>
bool negotiation<Any>::withdraw(task& one, protocol::withdrawal_reason reason) {
  {
    const comm::request_source::guard hold(source_);
    if (one.linked && one.started && reason == protocol::withdrawal_reason::deadline) {
      pass_deadline(one);
    }
    if (!one.linked || one.started || broken_) return false;
    if (!ready_) return end_unheard(one, reason);
    if (!is_between(one) && !node_.withdraw(one.operation_ref, reason, nanoseconds(clock::now()))) {
      return false;
    }
    one.withdrawn = true;
    one.withdrawn_for = reason;
    if (reason == protocol::withdrawal_reason::deadline && one.space != memory_space::host) {
      if (one.deadline == clock::time_point::max()) ++deadlines_;
      one.deadline = std::min(one.deadline, clock::now());  // if it is elected all the same
    }
    source_.at_next_look(*this);
    stay_awake();
  }
  engine_.started();
  return true;
}

// Before the instance is open nobody has heard of it, so it is certain how it ends, and it need not
// wait for that: some rank may open it late. For a deadline the root would ask first who is ready,
// and could elect it meanwhile, so it is told another reason.
template <class Any>
bool negotiation<Any>::end_unheard(task& one, protocol::withdrawal_reason reason) {
  using protocol::withdrawal_reason;
  const rank_set here{rank_};
  protocol::verdict why;
  why.kind = protocol::failure_kind::withdrawn;
  why.rank = rank_;
  why.reason = reason;
  const withdrawal_reason own = reason;
  if (reason == withdrawal_reason::deadline) {
    why.asked = true;
    why.ready = here;
    why.unknown = one.kind == op_kind::message ? rank_set{one.peer} : rank_set::span(0, size_ - 1);
    why.unknown.subtract(here);
    reason = withdrawal_reason::no_decision;
  }
  node_.hand_over(one.operation_ref, nobody);
  if (!node_.withdraw(one.operation_ref, reason, nanoseconds(clock::now()))) return false;
  one.fail(error_of(*one.view, given_name(one), one.verb(), why, own, not_open));
  complete(one);
  return true;
}

template <class Any>
void negotiation<Any>::fail_all(const std::exception_ptr& why) {
  for (task* each = first_; each != nullptr;) {
    task* const next = each->after;
    if (!each->started) {
      each->fail(why);
      complete(*each);
    }
    each = next;
  }
}

/// Nothing can be negotiated here any more. `known`: the log has it, and the others that this rank
/// leaves.
template <class Any>
void negotiation<Any>::break_down(const std::exception_ptr& why, bool known) {
  const comm::request_source::guard hold(source_);
  if (broken_) return;
  // Where a device cannot be opened all ranks hear of it, but perhaps first that another has ended.
  if (whole().opening) {
    if (!to_break_) to_break_ = why;
    return;
  }
  broken_ = why;
  try {
    if (!known) std::rethrow_exception(why);
  } catch (const std::exception& problem) {
    log::write(log::level::error, problem.what());
  } catch (...) {
  }
  fail_all(why);
  for (const auto& [set, one] : views_) one->joining = nullptr;
  adding_.clear();
  for (task* each : std::exchange(making_, {})) {  // the other members wait for the communicator
    each->fail(why);
    complete(*each);
  }
  end_makers(why);
  close_by_fault();
  timeline_->instant("fault", now());
  tools::mark(tools::category::event, tools::literal("fault"));
  if (ready_) {
    keeps_ = true;  // others may still send to this rank
    try {
      if (!known) tell_broken();
    } catch (...) {  // no memory: they find out by themselves
    }
  }
  channel_.give_up();
  channel_.close();
  check_released();
}

// ---- reports ------------------------------------------------------------------------------------

template <class Any>
void negotiation<Any>::list_waiting(std::string& text, clock::time_point at) {
  constexpr std::size_t most = 15;  // of the 16 of process::give_up
  std::size_t lines = 0;
  const auto line = [&](const task& one, const std::string& what, const char* state) {
    if (++lines > most) return;
    text += "  rank " + std::to_string(one.view->rank()) + ": " + what + ", " +
            progress::pending_age{one.submitted}.text(at) + state + "\n";
  };
  for (const task* each = first_; each != nullptr; each = each->after) {
    std::string what = join_verb;
    if (each->name != protocol::none) {
      what = each->verb();
      if (const std::string_view name = given_name(*each); !name.empty()) {
        what += " '" + std::string(name) + "'";
      }
    }
    line(*each, what, each->started ? ", elected" : ready_ ? "" : not_open);
  }
  for (const auto& [set, one] : views_) {
    for (const task* each : one->closing) {
      line(*each, set == 0 ? "shutdown of a coordinator" : "shutdown of a process set", "");
    }
  }
  if (lines > most) text += "  and " + std::to_string(lines - most) + " more\n";
}

template <class Any>
void negotiation<Any>::ask() {
  const comm::request_source::guard hold(source_);
  if (broken_ || !ready_) return;
  if (node_.request_report(nanoseconds(clock::now()))) touch();
}

template <class Any>
void negotiation<Any>::report(const protocol::stall_report& what) {
  last_report_ = what;
  std::string text;
  std::vector<pending_operation> waiting;
  for (const auto& [set, each] : views_) {
    for (pending_operation& one : pending_in(*each)) waiting.push_back(std::move(one));
  }
  for (const pending_operation& one : waiting) {
    if (!one.asked || one.started || one.age < options_.stall_warning) continue;
    const auto list = [](const std::vector<int>& ranks) {
      rank_set set;
      for (const int rank : ranks) set.insert(rank);
      return ranks.empty() ? std::string("none") : set.str();
    };
    text += "\n  " + one.verb;
    if (one.verb != join_verb) text += " '" + one.name + "' " + one.shape + " (" + one.site + ")";
    text += ", " +
            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(one.age).count()) +
            " ms; ready: " + list(one.ready) + "; missing: " + list(one.missing);
    if (!one.unknown.empty()) text += "; unknown: " + list(one.unknown);
  }
  warn_stalled(text);
}

/// Each line begins with a line break.
template <class Any>
void negotiation<Any>::warn_stalled(const std::string& lines) {
  if (lines.empty() || options_.stall_warning <= std::chrono::nanoseconds::zero()) return;
  timeline_->instant("stall warning", now());
  tools::mark(tools::category::event, tools::literal("stall warning"));
  log::write(log::level::warning,
             "rank " + std::to_string(rank_) + ": coordinator stalled:" + lines);
}

template <class Any>
std::vector<pending_operation> negotiation<Any>::pending_in(const view& set) const {
  std::vector<pending_operation> all;
  const auto at = clock::now();
  for (const task* each = first_; each != nullptr; each = each->after) {
    if (each->view != &set) continue;
    pending_operation& one = all.emplace_back();
    one.started = each->started;
    one.age = at - each->submitted;
    const auto asked = [&](const rank_set& ready, const rank_set& missing) {
      one.asked = true;
      one.ready = set.inside(ready).list();
      one.missing = set.inside(missing.without(ready)).list();
      rank_set unknown = last_report_.silent;
      unknown.unite(last_report_.unknown);
      one.unknown = set.inside(unknown).list();
    };
    if (each->name == protocol::none) {
      one.name = one.verb = join_verb;
      for (const auto& [which, joined] : last_report_.joined) {
        if (which != set.place.set || !joined.contains(rank_))
          continue;  // older than this rank's own
        asked(joined, rank_set::span(0, size_ - 1)
                          .without(last_report_.silent)
                          .without(last_report_.unknown));
      }
      continue;
    }
    const std::string& full_name = node_.name(each->name).text;
    one.name = protocol::own_name(full_name);
    one.verb = each->verb();
    for (const protocol::stall_report_row& row : last_report_.rows) {
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
  }
  return all;
}

template <class Any>
void negotiation<Any>::step() {
  const comm::request_source::guard hold(source_);
  timeline_->instant("step", now());
  tools::mark(tools::category::event, tools::literal("step"));
}

template <class Any>
std::error_code negotiation<Any>::start_timeline(const std::string& path) {
  const comm::request_source::guard hold(source_);
  return record_timeline(path);
}

template <class Any>
void negotiation<Any>::stop_timeline() {
  const comm::request_source::guard hold(source_);
  end_timeline();
}

}  // namespace cohort::coordination

#include <cohort/coordinator/detail/negotiation_device.ipp>
#include <cohort/coordinator/detail/negotiation_giving_up.ipp>
#include <cohort/coordinator/detail/negotiation_groups.ipp>
#include <cohort/coordinator/detail/negotiation_life.ipp>
#include <cohort/coordinator/detail/negotiation_log.ipp>
#include <cohort/coordinator/detail/negotiation_messages.ipp>
#include <cohort/coordinator/detail/negotiation_opening.ipp>
#include <cohort/coordinator/detail/negotiation_sets.ipp>
#include <cohort/coordinator/sets/set_view.ipp>
