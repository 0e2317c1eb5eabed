// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The wave: contributions, verdicts, and the end of a window.

#include <cohort/graph/machine/node.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

// ---- up ----

// Nothing here moves, and nothing is to be flushed. [graph T2]
template <class Any>
bool basic_node<Any>::passive() const noexcept {
  if (!idle() || unsent_count_ != 0 || !fresh_.empty() || compare_count_ != 0 || queued_ != 0) {
    return false;
  }
  // Some producer waits: a rank on which all have ended asks for nothing, and so never fences.
  return std::any_of(producers_.begin(), producers_.end(),
                     [](const producer_state& one) { return one.awaits != 0 || one.ending; });
}

// Tasks or awaits wait, mostly for what is on its way: the wave can wait as well. [graph T3]
template <class Any>
bool basic_node<Any>::is_patient() const noexcept {
  return options_.patient &&
         (waiting_ != 0 || std::any_of(producers_.begin(), producers_.end(),
                                       [](const producer_state& one) { return one.awaits != 0; }));
}

// Once per DOWN, after the children. [graph T3]
template <class Any>
bool basic_node<Any>::can_contribute() const noexcept {
  if (up_ || !passive()) return false;
  for (int i = 0; i < place_.child_count; ++i) {
    if (!ups_[static_cast<std::size_t>(i)]) return false;
  }
  return true;
}

template <class Any>
void basic_node<Any>::flush_contribution() {
  if (has_contribution() && contribute()) settle();
}

// True at the root, which has then decided. *Requires* `can_contribute()`.
template <class Any>
bool basic_node<Any>::contribute() {
  up_ = true;
  contribution all = own_contribution();
  for (int i = 0; i < place_.child_count; ++i) all.add(*ups_[static_cast<std::size_t>(i)]);
  if (place_.parent >= 0) {
    send(place_.parent, message_kind::up, all);
    return false;
  }
  const verdict what = root_.decide(std::move(all));
  std::vector<std::byte> body;
  if (place_.child_count != 0) wire::writer(body).put(what);
  apply(what, body);
  return true;
}

template <class Any>
contribution basic_node<Any>::own_contribution() {
  contribution all;
  all.sent = sent_;
  all.received = received_;
  all.waiting = waiting_;
  all.failed = failed_;
  all.first_failure = first_failure_;
  all.cancelled = cause_;
  for (const producer_state& one : producers_) {
    if (one.awaits != 0) all.kinds |= waits::await;
    if (one.ending) all.kinds |= waits::of(*one.ending);
  }
  std::erase_if(unknown_, [&](index at) { return !records_[at].unknown; });
  for (const index at : unknown_) all.unknown.push_back(records_[at].what);
  note_named(all);
  note_reports(all);
  return all;
}

// What this rank has named in this window since its last contribution. [graph K3]
template <class Any>
void basic_node<Any>::note_named(contribution& all) {
  const auto rank = static_cast<std::uint32_t>(rank_);
  for (family_record& one : records_.families()) {
    if (!one.mine || !one.named || std::exchange(one.told, true)) continue;
    all.named.push_back({one.facts, rank});
  }
  if (std::exchange(told_options_, true)) return;
  const std::string text = "eager=" + std::to_string(options_.eager) +
                           ", credit=" + std::to_string(options_.credit) +
                           ", fail_fast=" + (options_.fail_fast ? "true" : "false") +
                           (options_.agreed.empty() ? "" : ", " + options_.agreed);
  all.named.push_back({{}, rank});
  all.named.back().facts.placement = text;
}

template <class Any>
void basic_node<Any>::note_reports(contribution& all) {
  std::sort(diverged_.begin(), diverged_.end());
  diverged_.erase(std::unique(diverged_.begin(), diverged_.end()), diverged_.end());
  for (const index task : std::exchange(diverged_, {})) {
    report_own(task, false, divergence_text(task));  // [graph D2]
  }
  all.reports = std::exchange(reports_, {});
}

template <class Any>
void basic_node<Any>::on_up(int from, contribution one) {
  const int child = place_.child(from);
  if (child < 0 || ups_[static_cast<std::size_t>(child)]) out_of_place("a second contribution");
  ups_[static_cast<std::size_t>(child)] = std::move(one);
}

// ---- down ----

template <class Any>
void basic_node<Any>::on_down(int from, const verdict& what, std::span<const std::byte> body) {
  if (from != place_.parent || !up_) out_of_place("a verdict that nobody waits for");
  apply(what, body);
}

template <class Any>
void basic_node<Any>::apply(const verdict& what, std::span<const std::byte> body) {
  for (int i = 0; i < place_.child_count; ++i) {
    send_body(place_.children[static_cast<std::size_t>(i)], message_kind::down, body);
  }
  up_ = false;
  ups_ = {};
  if (what.kind == verdict_kind::more) return;
  ++epoch_;  // [graph T7]
  if (what.kind == verdict_kind::not_spawned) {
    apply_not_spawned(what.unknown);
  } else if (what.kind == verdict_kind::cycle) {
    apply_cycle();
  } else {
    end_of_window(what);
  }
  unpark();
}

// Everyone to its own waiters, at the same epoch. [graph T6]
template <class Any>
void basic_node<Any>::apply_not_spawned(const std::vector<key>& keys) {
  std::vector<index> values;
  for (const key& one : keys) {
    const index value = records_.find(one);
    if (value == none || records_[value].marked) continue;
    records_[value].marked = true;
    values.push_back(value);
    records_[value].wanted = false;  // also what nobody waits for any more [graph T6]
    if (records_[value].decided) continue;
    known_now(records_[value]);  // [graph W4]
    for (index at = records_[value].peers; at != none; at = peers_[at].next) {
      peers_[at].asked = false;  // not remembered: a later spawn is served [graph W4]
    }
  }
  for (const index value : values) {
    for_each_waiter(value, [&](index task) {
      if (records_[task].state != task_state::waiting) return;
      const stored_definition& known = definitions_[records_[task].definition];
      for (const edge& each : known.edges()) {
        if (!records_[each.value].marked) continue;
        finish(task, not_spawned(each.value, task_text(task)));
        break;
      }
    });
    records_[value].waiters = none;
    std::vector<index> slots;
    for_each_await(value, [&](index slot) { slots.push_back(slot); });
    for (const index slot : slots) {
      end_await(slot, not_spawned(value, await_text(awaits_[slot].site)), false);
    }
  }
  for (const index value : values) records_[value].marked = false;
  std::erase_if(unknown_, [&](index at) { return !records_[at].unknown; });
}

template <class Any>
void basic_node<Any>::apply_cycle() {
  std::vector<std::pair<index, content_ptr>> all;  // told before any of them has ended
  for (index task = 0; task < records_.size(); ++task) {
    if (records_[task].state == task_state::waiting) all.emplace_back(task, cyclic(task));
  }
  for (auto& [task, why] : all) {
    if (records_[task].state == task_state::waiting) finish(task, std::move(why));
  }
}

// ---- the end of a window ----

template <class Any>
void basic_node<Any>::end_of_window(const verdict& what) {
  const window_end how = what.kind == verdict_kind::close   ? window_end::close
                         : what.kind == verdict_kind::fence ? window_end::fence
                                                            : window_end::again;
  const std::optional<window_end> asked = asked_for();
  report_ = what.report;
  report_.closed = asked && *asked < how;  // [graph T8]
  const bool again = how == window_end::again && !cancelled_;
  ++window_;
  for (family_record& one : records_.families()) {
    one.told = false;
    if (!again) one.named = false;
  }
  told_options_ = false;
  root_.clear_window();
  reports_.clear();
  own_reports_ = 0;
  failed_ = 0;
  first_failure_.reset();
  if (again) {
    repeat();
  } else {
    clear();
  }
  if (how == window_end::close) closed_ = true;
  tell_window_ended();
}

template <class Any>
void basic_node<Any>::tell_window_ended() {
  for (producer_state& one : producers_) {
    if (!one.ending) continue;
    one.ending.reset();
    if (one.busy()) ++busy_;
  }
  actions_.push_back({.kind = action_kind::window_ended});
}

// Forgets the window. [graph R2]
template <class Any>
void basic_node<Any>::clear() {
  clear_exchange();
  records_.clear();
  definitions_.clear();
  peers_.clear();
  peer_table_.clear();
  remote_takers_.clear();
}

// What neither a fence nor `again` leaves of messages and claims.
template <class Any>
void basic_node<Any>::clear_exchange() {
  for (announcement& one : announced_) {  // `lists` stays [graph A4]
    one.sum = {};
    one.unlisted.clear();
    one.fresh = false;
  }
  fresh_.clear();
  own_.clear();
  summed_ = 0;
  own_sum_ = {};
  compare_count_ = 0;
  for (account& one : accounts_) {
    one.credit = options_.credit;  // [graph U2]
    one.owed = 0;
    one.digest.reset();
    one.agreed = 0;
  }
  declarations_.clear();
  diverged_.clear();
  unknown_.clear();
  unknown_count_ = 0;
  unsent_.clear();
  unsent_claims_.clear();
  unsent_count_ = 0;
  hashes_.clear();
  offers_.clear();
  held_.clear();
  asking_.clear();
  takers_.clear();
}

// The same tasks once more, without a message; sources are put again. [graph O4]
template <class Any>
void basic_node<Any>::repeat() {
  clear_exchange();
  for (index at = 0; at < peers_.size(); ++at) {  // consumers stay
    peer& one = peers_[at];
    one.asked = one.sent = one.given = false;
  }
  for (index at = 0; at < records_.size(); ++at) {
    record& one = records_[at];
    one.value = nullptr;
    one.waiters = one.awaits = one.taker = one.declared = none;
    one.state = task_state::absent;
    if (one.source) one.decided = one.source = false;
    one.spawned = one.wanted = one.unsent = one.unasked = one.gone = one.unknown = false;
  }
  for (index at = 0; at < records_.size(); ++at) {
    if (records_[at].decided) start(records_[at], at);
  }
}

}  // namespace cohort::graph::machine
