// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Awaits, and the producers that they block.

#include <cohort/graph/machine/node.hpp>

#include <cohort/core/error.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

// ---- producers (graph O3) ----

template <class Any>
void basic_node<Any>::check_producer(producer who) const {
  if (who >= producers_.size() || producers_[who].ended) {
    throw cohort::error(errc::invalid_argument, "task graph: producer " + std::to_string(who) +
                                                    " does not exist or has ended");
  }
}

template <class Any>
producer basic_node<Any>::fork() {
  ++busy_;
  for (producer who = 1; who < producers_.size(); ++who) {
    if (!producers_[who].ended || producers_[who].awaits != 0) continue;
    producers_[who] = producer_state();
    return who;
  }
  producers_.emplace_back();
  return static_cast<producer>(producers_.size() - 1);
}

template <class Any>
void basic_node<Any>::end(producer who) {
  check_producer(who);
  if (producers_[who].busy()) --busy_;
  producers_[who].ended = true;
  settle();
}

template <class Any>
void basic_node<Any>::end_window(producer who, window_end how) {
  check_producer(who);
  if (producers_[who].busy()) --busy_;
  producers_[who].ending = how;
  settle();
}

// What this rank asks for, if it does: the most of what its producers do. [graph T8]
template <class Any>
std::optional<window_end> basic_node<Any>::asked_for() const noexcept {
  std::optional<window_end> most;
  for (const producer_state& one : producers_) {
    if (one.ending && (!most || *one.ending > *most)) most = one.ending;
  }
  return most;
}

// ---- awaits ----

template <class Any>
await_start basic_node<Any>::await(producer who, const task_name& task, bool takes,
                                   spawn_site site) {
  check_producer(who);
  if (cancelled_ || closed_) return {.ended = refused_by_end()};  // [graph C2]
  const index at = records_.make(task);
  if (records_[at].gone) {  // [graph M4]
    return {.ended = taken(at, records_[at].taker, await_text(site))};
  }
  const index slot = new_await(who, at, takes, site);
  starting_ = slot;
  started_ = {};
  if (takes) ask_claim(at, taker_of_await(slot));
  if (awaits_[slot].waits) {
    if (const content_ptr here = records_[at].value) {
      fetched(slot, here);
    } else {
      need(at);
    }
    if (awaits_[slot].waits) send_wants_of(at);  // an await asks at once [graph W1]
  }
  starting_ = none;
  if (!started_.ended) started_.number = number_of(slot);
  settle();
  return std::exchange(started_, {});
}

template <class Any>
void basic_node<Any>::withdraw(await_number which) {
  const auto slot = static_cast<index>(which & 0xffffffffU);
  if (slot >= awaits_.size() || !awaits_[slot].waits || number_of(slot) != which) return;
  free_await(slot);
  settle();
}

// Slots are used again, numbers are not.
template <class Any>
await_number basic_node<Any>::number_of(index slot) const noexcept {
  return (await_number{awaits_[slot].turn} << 32U) | slot;
}

// As a taker it has a key too, which is no task's: its number and its rank.
template <class Any>
key basic_node<Any>::key_of_await(index slot) const noexcept {
  return {number_of(slot), 0, rank_};
}

template <class Any>
std::uint32_t basic_node<Any>::new_await(producer who, index value, bool takes, spawn_site site) {
  index slot = free_await_;
  if (slot == none) {
    slot = static_cast<index>(awaits_.size());
    awaits_.emplace_back();
  } else {
    free_await_ = awaits_[slot].next;
  }
  if (producers_[who].busy()) --busy_;
  ++producers_[who].awaits;
  waiting_await& one = awaits_[slot];
  one.value = value;
  one.who = who;
  one.site = site;
  one.takes = takes;
  one.waits = true;
  index& last = records_[value].awaits;
  if (last == none) {
    one.next = one.previous = slot;
  } else {
    one.next = std::exchange(awaits_[last].next, slot);
    one.previous = last;
    awaits_[one.next].previous = slot;
  }
  last = slot;
  return slot;
}

// Its producer is busy again, unless it waits for something else too.
template <class Any>
void basic_node<Any>::free_await(index slot) {
  waiting_await& one = awaits_[slot];
  index& last = records_[one.value].awaits;
  if (one.next == slot) {
    last = none;
  } else {
    awaits_[one.next].previous = one.previous;
    awaits_[one.previous].next = one.next;
    if (last == slot) last = one.previous;
  }
  one.waits = false;
  ++one.turn;
  one.next = std::exchange(free_await_, slot);
  --producers_[one.who].awaits;
  if (producers_[one.who].busy()) ++busy_;
}

template <class Any>
void basic_node<Any>::end_await(index slot, content_ptr what, bool may_move) {
  if (slot == starting_) {
    started_ = {.ended = std::move(what), .may_move = may_move};
  } else {
    actions_.push_back({.kind = action_kind::resume,
                        .number = number_of(slot),
                        .what = std::move(what),
                        .may_move = may_move});
  }
  free_await(slot);
}

// The value is here; one that is to be taken needs the claim as well. [graph M2]
template <class Any>
void basic_node<Any>::fetched(index slot, const content_ptr& what) {
  const waiting_await& one = awaits_[slot];
  const index value = one.value;
  bool may_move = false;
  const bool takes = one.takes && what->failed() == nullptr;
  if (takes && !has_claim(slot)) return;
  use_pushed(value);
  if (takes) {
    hand_over(value);                  // [graph M3]
    may_move = what.use_count() == 1;  // `what` itself
  }
  end_await(slot, what, may_move);
}

// Plain readers first: who takes it gets it alone.
template <class Any>
void basic_node<Any>::end_awaits(index value, const content_ptr& what) {
  std::vector<index> slots;
  for_each_await(value, [&](index slot) { slots.push_back(slot); });
  for (const bool takes : {false, true}) {
    for (const index slot : slots) {
      if (awaits_[slot].waits && awaits_[slot].takes == takes) fetched(slot, what);
    }
  }
}

template <class Any>
template <class Visit>
void basic_node<Any>::for_each_await(index value, Visit visit) const {
  const index last = records_[value].awaits;
  if (last == none) return;
  index slot = last;
  do {
    slot = awaits_[slot].next;
    visit(slot);
  } while (slot != last);
}

}  // namespace cohort::graph::machine
