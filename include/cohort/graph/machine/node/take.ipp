// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Take: a claim comes before the value, a release after it.

#include <cohort/graph/machine/node.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

// ---- who takes ----

template <class Any>
inline std::uint32_t basic_node<Any>::keep_taker(const taker& one) {
  const index at = takers_.take(1);
  takers_[at] = one;
  return at;
}

// A task of this rank, by its dependency.
template <class Any>
std::uint32_t basic_node<Any>::taker_of_edge(index at) {
  const record& task = records_[definitions_.edge_at(at).owner];
  return keep_taker({.what = task.what,
                     .name = task.name,
                     .site = definitions_[task.definition].site(),
                     .local = at});
}

// A task that was spawned here, and is at home elsewhere.
template <class Any>
std::uint32_t basic_node<Any>::taker_of_task(index task) {
  const record& one = records_[task];
  return keep_taker(
      {.what = one.what, .name = one.name, .site = definitions_[one.definition].site()});
}

template <class Any>
std::uint32_t basic_node<Any>::taker_of_await(index slot) {
  return keep_taker(
      {.what = key_of_await(slot), .site = awaits_[slot].site, .local = slot, .await = true});
}

template <class Any>
std::uint32_t basic_node<Any>::taker_of(const told_taker& one) {
  taker kept{.what = one.what, .await = one.await};
  kept.site = {owner_.keep_text(one.site.file), one.site.line};
  if (!one.await) {
    // With its record, which stays: names are forgotten by a fence only, and `again` is none.
    const index task = records_.make(one.what);
    records_.name(task, records_.family_named(one.name.family),
                  static_cast<index>(one.name.indices.size()), one.name.indices.data());
    kept.name = records_[task].name;
  }
  return keep_taker(kept);
}

template <class Any>
told_taker basic_node<Any>::told(index one) const {
  const taker& who = takers_[one];
  told_taker out;
  out.what = who.what;
  out.await = who.await;
  out.site = {file_of(who.site), who.site.line};
  if (who.name != none) {
    const task_name name = records_.name_of(who.name);
    out.name = {records_.families()[name.family].facts.name,
                {name.indices.begin(), name.indices.begin() + name.count}};
  }
  return out;
}

// ---- claims ----

// On the rank of the taker. [graph M1]
template <class Any>
void basic_node<Any>::ask_claim(index value, index who) {
  if (records_[value].what.home == rank_) {
    claim(value, who);
  } else if (records_[value].taker != none) {
    confirm(value, who);
  } else {
    asking_[value].push_back(who);
    takers_[who].unsent = true;
    ++unsent_count_;
    unsent_claims_.emplace_back(value, who);
  }
}

// At home: the first taker that it hears of has the claim. Every taker is told once. [graph M1]
template <class Any>
void basic_node<Any>::claim(index value, index who) {
  record& one = records_[value];
  if (one.taker == none) {
    one.taker = who;
  } else {
    for (index at = one.taker;; at = takers_[at].next) {
      if (takers_[at].is(takers_[who])) return;
      if (takers_[at].next != none) continue;
      takers_[at].next = who;
      break;
    }
  }
  const int rank = takers_[who].what.home;
  if (rank == rank_) {
    confirm(value, who);
  } else {
    send(rank, message_kind::taken, taken_message{one.what, told(one.taker), false});
  }
}

template <class Any>
bool basic_node<Any>::has_claim(index slot) const {
  const index winner = records_[awaits_[slot].value].taker;
  return winner != none && takers_[winner].await && takers_[winner].what == key_of_await(slot);
}

// A taker of this rank learns who has the claim: it, or it ends with `taken`. [graph M2]
template <class Any>
void basic_node<Any>::confirm(index value, index who) {
  const taker& one = takers_[who];
  const index winner = records_[value].taker;
  const bool won = winner == who || takers_[winner].is(one);
  if (one.await) {
    if (!awaits_[one.local].waits || key_of_await(one.local) != one.what) return;  // withdrawn
    if (!won) {
      end_await(one.local, taken(value, winner, await_text(one.site)), false);
    } else if (const content_ptr here = records_[value].value) {
      fetched(one.local, here);
    }
    return;
  }
  if (one.local == none) return;
  const index task = definitions_.edge_at(one.local).owner;
  definitions_.edge_at(one.local).unclaimed = false;
  --records_[task].unclaimed;
  if (won) {
    try_ready(records_[task], task);
  } else if (records_[task].state == task_state::waiting) {
    finish(task, taken(value, winner, task_text(task)));
  }
}

// Who has the claim; if gone, the value was handed over, and who still waits for it is late.
template <class Any>
void basic_node<Any>::on_taken(int from, const taken_message& one) {
  const index value = known(one.value, from, "a claim");
  if (records_[value].taker == none) records_[value].taker = taker_of(one.winner);
  if (const auto found = asking_.find(value); found != asking_.end()) {
    const std::vector<index> all = std::move(found->second);
    asking_.erase(found);
    for (const index who : all) {
      if (std::exchange(takers_[who].unsent, false)) --unsent_count_;
    }
    for (const index who : all) confirm(value, who);
  }
  if (one.gone) end_late(value);
}

// [graph M4]
template <class Any>
void basic_node<Any>::end_late(index value) {
  records_[value].wanted = false;
  const index winner = records_[value].taker;
  for_each_waiter(value, [&](index task) {
    if (records_[task].state == task_state::waiting) {
      finish(task, taken(value, winner, task_text(task)));
    }
  });
  records_[value].waiters = none;
  std::vector<index> late;
  for_each_await(value, [&](index slot) { late.push_back(slot); });
  for (const index slot : late) {
    end_await(slot, taken(value, winner, await_text(awaits_[slot].site)), false);
  }
}

// ---- hand-over ----

// The taker has all its inputs and claims. [graph M3]
template <class Any>
void basic_node<Any>::hand_over(index value) {
  record& one = records_[value];
  if (one.what.home == rank_) return forget(value);
  one.value = nullptr;
  one.gone = true;
  send(one.what.home, message_kind::release, release_message{one.what});
}

template <class Any>
void basic_node<Any>::on_release(int from, const release_message& one) {
  const index value = one.value.home == rank_ ? records_.find(one.value) : none;
  if (value == none || !records_[value].value || records_[value].taker == none ||
      takers_[records_[value].taker].what.home != from) {
    out_of_place("a release of a value that it has not taken");
  }
  forget(value);
}

// Home keeps the value only for those to whom it is offered. [graph M3]
template <class Any>
void basic_node<Any>::forget(index value) {
  record& one = records_[value];
  content_ptr what = std::exchange(one.value, nullptr);
  one.gone = true;
  if (has_open_offers(value)) held_[value] = std::move(what);
}

// [graph M4]
template <class Any>
void basic_node<Any>::refuse_late(index value, int to) {
  send(to, message_kind::taken,
       taken_message{records_[value].what, told(records_[value].taker), true});
}

template <class Any>
template <class Visit>
void basic_node<Any>::for_each_waiter(index value, Visit visit) const {
  const index last = records_[value].waiters;
  if (last == none) return;
  index at = last;
  do {
    at = definitions_.edge_at(at).next;
    visit(definitions_.edge_at(at).owner);
  } while (at != last);
}

}  // namespace cohort::graph::machine
