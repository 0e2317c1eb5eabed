// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Home: it decides about a task, and runs it.

#include <cohort/graph/machine/node.hpp>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

namespace cohort::graph::machine {

// ---- definitions ----

template <class Any>
inline void basic_node<Any>::keep_definition(record& one, index made) {
  if (one.definition != none) {  // of the window before `again`
    stored_definition& known = definitions_[one.definition];
    if (const stored_definition& what = definitions_[made]; are_equal(known, what)) {
      known.set_site(what.site());
      return definitions_.drop(made);
    }
  }
  one.definition = made;
}

// In all that is hashed. The values of two sources are not looked at. [graph K5]
template <class Any>
bool basic_node<Any>::are_equal(const stored_definition& one,
                                const stored_definition& other) const noexcept {
  if (one.source || other.source) return one.source && other.source;
  if (one.function != other.function || one.count != other.count) return false;
  const auto left = one.arguments();
  const auto right = other.arguments();
  if (one.travels && other.travels &&
      !std::equal(left.begin(), left.end(), right.begin(), right.end())) {
    return false;
  }
  for (index i = 0; i < one.count; ++i) {
    const edge& each = one.edges()[i];
    const edge& same = other.edges()[i];
    if (each.value != same.value || each.use != same.use) return false;
  }
  return one.result == other.result;
}

// ---- decide ----

// Decided once, at the first declaration, and started. [graph D1]
template <class Any>
void basic_node<Any>::declare(index task, index made, int from, const content_ptr& value) {
  record& one = records_[task];
  const stored_definition& what = definitions_[made];
  if (!one.decided) {
    one.decided = true;
    one.source = what.source;
    one.takes = what.takes;
    if (one.unknown) known_now(one);
    keep_definition(one, made);
    if (from != rank_) note_declaration(task, from, one.definition);
    if (one.source) {
      finish(task, value);
    } else {
      start(one, task);
    }
    return;
  }
  index which = made;
  if (are_equal(definitions_[one.definition], what)) which = one.definition;
  for (index at = one.declared; at != none && which == made; at = declarations_[at].next) {
    if (are_equal(definitions_[declarations_[at].definition], what)) {
      which = declarations_[at].definition;
    }
  }
  if (which != made) definitions_.drop(made);
  if (from != rank_ || which != one.definition) note_declaration(task, from, which);
  if (which != one.definition || has_diverged(task)) diverged_.push_back(task);  // [graph D2]
}

template <class Any>
void basic_node<Any>::note_declaration(index task, int rank, index definition) {
  for (index at = records_[task].declared; at != none; at = declarations_[at].next) {
    if (declarations_[at].rank == rank && declarations_[at].definition == definition) return;
  }
  const index at = declarations_.take(1);
  declarations_[at] = {rank, definition, records_[task].declared};
  records_[task].declared = at;
}

template <class Any>
bool basic_node<Any>::has_diverged(index task) const {
  for (index at = records_[task].declared; at != none; at = declarations_[at].next) {
    if (declarations_[at].definition != records_[task].definition) return true;
  }
  return false;
}

// What this rank itself has spawned, which need not be what was decided.
template <class Any>
std::uint32_t basic_node<Any>::own_definition(index task) const {
  for (index at = records_[task].declared; at != none; at = declarations_[at].next) {
    if (declarations_[at].rank == rank_) return declarations_[at].definition;
  }
  return records_[task].definition;
}

// ---- start ----

template <class Any>
void basic_node<Any>::start(record& one, index task) {
  stored_definition& what = definitions_[one.definition];
  const std::span<edge> edges = what.edges();
  one.state = task_state::waiting;
  one.missing = one.unclaimed = 0;
  ++waiting_;
  index gone = none;
  index absent = 0;
  for (const edge& each : edges) {
    const record& value = records_[each.value];
    if (value.value) continue;
    ++absent;
    if (value.gone && gone == none) gone = each.value;
  }
  if (absent != what.count) {
    content* const failed = take_present(what);
    if (failed != nullptr) return finish(task, content_ptr(failed));  // [graph F2]
  }
  if (gone != none) {  // [graph M4]
    return finish(task, taken(gone, records_[gone].taker, task_text(task)));
  }
  const index first = definitions_.first_edge(one.definition);
  for (index i = 0; one.missing != absent; ++i) {
    record& value = records_[edges[i].value];
    if (!value.value) link(value, one, edges[i], first + i);
  }
  if (one.takes) claim_inputs(one, what, first);
  try_ready(one, task);
}

// The inputs that are here already. The first failure among them, or null.
template <class Any>
content* basic_node<Any>::take_present(stored_definition& what) {
  content* failed = nullptr;
  for (index i = 0; i < what.count; ++i) {
    const edge& each = what.edges()[i];
    const record& value = records_[each.value];
    if (!value.value) continue;
    if (failed == nullptr && value.value->failed() != nullptr) failed = value.value.get();
    if (each.use != use_kind::after) what.inputs()[i].what = value.value;  // [graph R1]
    if (value.unasked) use_pushed(each.value);
  }
  return failed;
}

// The task waits for the value.
template <class Any>
inline void basic_node<Any>::link(record& value, record& task, edge& each, index at) {
  ++task.missing;
  if (value.waiters == none) {
    each.next = at;
  } else {
    each.next = std::exchange(definitions_.edge_at(value.waiters).next, at);
  }
  value.waiters = at;
  if (!value.decided && !value.wanted) need(each.value);
}

template <class Any>
void basic_node<Any>::claim_inputs(record& task, stored_definition& what, index first) {
  const std::span<edge> edges = what.edges();
  for (edge& each : edges) {
    each.unclaimed = each.use == use_kind::take;
    if (each.unclaimed) ++task.unclaimed;
  }
  for (index i = 0; i < what.count; ++i) {
    if (edges[i].use == use_kind::take) ask_claim(edges[i].value, taker_of_edge(first + i));
  }
}

// All inputs are here, and all claims confirmed. [graph M2]
template <class Any>
inline void basic_node<Any>::try_ready(record& one, index task, bool by_its_value) {
  if (one.state != task_state::waiting || one.missing != 0 || one.unclaimed != 0) return;
  one.state = task_state::ready;
  --waiting_;
  const bool is_urgent = one.peers != none || one.remote_takers;
  ready_.insert(task, is_urgent      ? readiness::urgent
                      : by_its_value ? readiness::update
                                     : readiness::other);
  if (one.takes) hand_over_inputs(one);
}

template <class Any>
void basic_node<Any>::hand_over_inputs(const record& task) {
  for (const edge& each : definitions_[task.definition].edges()) {
    if (each.use == use_kind::take) hand_over(each.value);  // [graph M3]
  }
}

// ---- run ----

template <class Any>
running_task basic_node<Any>::start_ready(index task) {
  record& one = records_[task];
  stored_definition& what = definitions_[one.definition];
  one.state = task_state::running;
  ++running_;
  const running_task run{task, what.function, what.arguments(), what.uses(), what.inputs()};
  if (!one.takes) return run;
  for (index i = 0; i < what.count; ++i) {
    task_input& each = run.inputs[i];
    // In place if nobody else here holds it: no input, no offer, no transfer. [graph M3]
    each.may_move = run.uses[i] == use_kind::take && each.what.use_count() == 1;
  }
  return run;
}

template <class Any>
void basic_node<Any>::ended(task_index which, content_ptr what) {
  assert(records_[which].state == task_state::running && what);
  --running_;
  if (set_value(which, what)) wake(which, what);  // nothing else is to be woken between events
  settle();
}

template <class Any>
void basic_node<Any>::finish(index task, content_ptr what) {
  if (set_value(task, what)) wakes_.push_back({task, std::move(what)});  // [graph F3]
}

// The task has ended with this. Whether somebody here waits for it.
template <class Any>
bool basic_node<Any>::set_value(index task, const content_ptr& what) {
  record& one = records_[task];
  if (one.state == task_state::done) return false;
  if (one.state == task_state::waiting) --waiting_;
  one.state = task_state::done;
  definitions_[one.definition].drop_inputs();  // [graph R1]
  if (what->failed() != nullptr) note_failure(one.what, *what->failed());
  one.value = what;
  if (one.peers != none || one.remote_takers) serve(one, task);
  return one.waiters != none || one.awaits != none;
}

// The value goes where it is waited for, and where it will be.
template <class Any>
void basic_node<Any>::serve(const record& one, index task) {
  for (index at = one.peers; at != none; at = peers_[at].next) {
    if (std::exchange(peers_[at].asked, false)) give(task, peers_[at].rank);  // [graph W2]
  }
  for (index at = one.peers; at != none; at = peers_[at].next) {
    if (peers_[at].consumer) push(task, peers_[at].rank, none);  // [graph U1]
  }
  if (!one.remote_takers) return;
  for (const index each : remote_takers_[task]) {
    push(task, records_[each].what.home, each);  // [graph U1]
  }
}

// A task of this rank has no value. [graph F1]
template <class Any>
void basic_node<Any>::note_failure(const key& task, const failure& why) {
  ++failed_;
  if (!first_failure_ || task < first_failure_->what) first_failure_ = {task, why};
  if (options_.fail_fast && !cancelled_ && !first_failure_here_) {  // [graph F4]
    first_failure_here_ = why;
  }
}

// Who waits here gets the value.
template <class Any>
void basic_node<Any>::wake(index value, const content_ptr& what) {
  record& one = records_[value];
  const index last = std::exchange(one.waiters, none);
  if (last != none) {
    index at = definitions_.edge_at(last).next;
    for (; at != last; at = definitions_.edge_at(at).next) wake_edge(at, what);
    wake_edge(last, what);  // mostly the only one, and known without looking at `next`
  }
  if (one.awaits != none) end_awaits(value, what);
}

// The value of this dependency of a task is here.
template <class Any>
inline void basic_node<Any>::wake_edge(index at, const content_ptr& what) {
  const edge& each = definitions_.edge_at(at);
  record& task = records_[each.owner];
  if (task.state != task_state::waiting) return;
  --task.missing;
  if (each.use != use_kind::after) {
    stored_definition& known = definitions_[task.definition];
    known.inputs()[at - definitions_.first_edge(task.definition)].what = what;  // [graph R1]
  }
  if (what->failed() != nullptr) {
    finish(each.owner, what);  // [graph F2]
  } else {
    try_ready(task, each.owner, each.use == use_kind::take);
  }
}

}  // namespace cohort::graph::machine
