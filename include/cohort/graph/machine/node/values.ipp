// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Values between ranks: wanted, given, pushed.

#include <cohort/graph/machine/node.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

template <class Any>
peer& basic_node<Any>::peer_of(index value, int rank) {
  const std::uint64_t mixed =
      (value * 0x9e3779b97f4a7c15U) ^ (static_cast<std::uint32_t>(rank) * 0x9fb21c651e98df25U);
  const auto hash = static_cast<std::uint32_t>((mixed ^ (mixed >> 29U)) >> 8U);
  index at = peer_table_.find(
      hash, [&](index one) { return peers_[one].value == value && peers_[one].rank == rank; });
  if (at == none) {
    at = peers_.take(1);
    peers_[at] = {.value = value, .rank = rank, .next = records_[value].peers};
    records_[value].peers = at;
    peer_table_.insert(hash, at);
  }
  return peers_[at];
}

// ---- consumer ----

// Somebody here waits for a value that is not here. [graph W1]
template <class Any>
void basic_node<Any>::need(index value) {
  record& one = records_[value];
  if (one.value || one.wanted) return;
  one.wanted = true;
  if (!offers_.empty()) {
    if (const auto parked = offers_.find(value); parked != offers_.end()) {
      const std::size_t size = parked->second;
      offers_.erase(parked);
      return ask_tag(value, size);  // [graph L2]
    }
  }
  if (one.what.home == rank_) {
    note_unknown(value);  // [graph W2]
  } else {
    want(value);
  }
}

template <class Any>
void basic_node<Any>::want(index value) {
  record& one = records_[value];
  if (one.unsent) return;
  one.unsent = true;
  ++unsent_count_;
  unsent_.push_back(value);
}

template <class Any>
void basic_node<Any>::forget_want(index value) {
  if (records_[value].unsent) --unsent_count_;
  records_[value].unsent = false;
}

template <class Any>
void basic_node<Any>::flush_wants() {
  if (unsent_count_ == 0) return;
  for (const auto& [value, who] : std::exchange(unsent_claims_, {})) send_claim(value, who);
  for (const index value : unsent_) send_want(value);
  unsent_.clear();
}

template <class Any>
void basic_node<Any>::send_wants_of(index value) {
  for (const auto& [each, who] : unsent_claims_) {
    if (each == value) send_claim(each, who);
  }
  send_want(value);
}

template <class Any>
void basic_node<Any>::send_want(index value) {
  if (!records_[value].unsent) return;
  forget_want(value);
  send(records_[value].what.home, message_kind::want, want_message{records_[value].what, {}});
}

// The want of a taker says that the value is wanted, too. [graph M1]
template <class Any>
void basic_node<Any>::send_claim(index value, index who) {
  if (!std::exchange(takers_[who].unsent, false)) return;
  --unsent_count_;
  forget_want(value);
  send(records_[value].what.home, message_kind::want,
       want_message{records_[value].what, told(who)});
}

// A task or an await here uses a value that was pushed: its credit goes back. [graph U3]
template <class Any>
void basic_node<Any>::use_pushed(index value) {
  record& one = records_[value];
  if (!one.unasked) return;
  one.unasked = false;
  account& from = accounts_[static_cast<std::size_t>(one.what.home)];
  from.owed += one.value->bytes().size();
  if (2 * from.owed >= options_.credit) {
    send(one.what.home, message_kind::credit, credit_message{std::exchange(from.owed, 0)});
  }
}

template <class Any>
void basic_node<Any>::on_val(int from, value_message one) {
  const index value = known(one.value, from, "a value");
  content_ptr what = one.failed ? content_ptr(new failed_content(std::move(*one.failed)))
                                : content_ptr(new arrived_content(std::move(one.bytes)));
  if (one.hash) hashes_[value] = *one.hash;  // [graph U4]
  records_[value].unasked = one.pushed && what->failed() == nullptr;
  arrive(value, std::move(what));
}

template <class Any>
void basic_node<Any>::arrive(index value, content_ptr what) {
  record& one = records_[value];
  if (one.value || one.gone) out_of_place("a value that is here already");
  if (cancelled_) return;
  forget_want(value);
  one.value = what;
  if (one.wanted) use_pushed(value);
  wakes_.push_back({value, std::move(what)});
}

// ---- home ----

template <class Any>
void basic_node<Any>::known_now(record& value) {
  if (value.unknown) --unknown_count_;
  value.unknown = false;
}

template <class Any>
void basic_node<Any>::note_unknown(index value) {
  record& one = records_[value];
  if (one.decided || one.unknown) return;
  one.unknown = true;
  ++unknown_count_;
  unknown_.push_back(value);
}

template <class Any>
void basic_node<Any>::on_want(int from, const want_message& one) {
  if (one.value.home != rank_) out_of_place("a want for a value of another home");
  if (one.taker && one.taker->what.home != from) out_of_place("a want of a taker of another rank");
  const index value = records_.make(one.value);
  if (one.taker) claim(value, taker_of(*one.taker));
  const record& what = records_[value];
  if (what.value) return give(value, from);  // [graph W2]
  peer& asking = peer_of(value, from);
  if (what.gone) {
    if (!asking.sent) refuse_late(value, from);  // [graph M4]
    return;
  }
  asking.asked = true;  // [graph W2]
  if (what.state == task_state::ready) ready_.hurry(value);
  note_unknown(value);
}

// Once to a rank; a want that crosses it is dropped. [graph W3]
template <class Any>
void basic_node<Any>::give(index value, int to) {
  if (to == rank_ || cancelled_) return;
  peer& one = peer_of(value, to);
  if (std::exchange(one.sent, true)) return;
  const content_ptr& what = records_[value].value;
  if (what->failed() != nullptr || why_it_stays(value, to) ||
      what->bytes().size() <= options_.eager) {
    one.given = true;
    send_value(value, to, false);
  } else {
    offer(value, to);  // [graph L1]
  }
}

// To the home of a task that was spawned here and reads it, or takes it. [graph U1]
template <class Any>
void basic_node<Any>::push(index value, int to, index task) {
  if (to == rank_ || cancelled_ || records_[value].gone) return;
  const content_ptr what = records_[value].value;
  if (what->failed() != nullptr) return give(value, to);
  if (task != none) claim(value, taker_of_task(task));  // [graph M1]
  peer& one = peer_of(value, to);
  if (one.sent || why_it_stays(value, to)) return give(value, to);
  one.sent = true;
  const std::size_t size = what->bytes().size();
  account& with = accounts_[static_cast<std::size_t>(to)];
  if (size <= options_.eager && with.credit >= size) {
    with.credit -= size;  // [graph U2]
    one.given = true;
    send_value(value, to, true);
  } else {
    offer(value, to);  // [graph U2]
  }
}

// What goes to other ranks instead of a value that cannot leave its home: it has no wire format, or
// code of the program that encodes it throws. Null for others, whose bytes can be had then.
template <class Any>
content_ptr basic_node<Any>::why_it_stays(index value, int to) const {
  content& what = *records_[value].value;
  if (!what.travels()) return stays_at_home(value, to, "its type has no wire format");
  try {
    static_cast<void>(what.bytes());
  } catch (const std::exception& thrown) {
    return stays_at_home(value, to, std::string("to encode it has failed: ") + thrown.what());
  } catch (...) {
    return stays_at_home(value, to, "to encode it has failed");
  }
  return nullptr;
}

// A task that is spawned here, and is at home elsewhere, uses a value of this rank. [graph U1]
template <class Any>
void basic_node<Any>::consumer(index value, index task, use_kind use) {
  const int to = records_[task].what.home;
  if (records_[value].what.home != rank_) return;
  if (use == use_kind::take) {
    std::vector<index>& all = remote_takers_[value];
    if (std::find(all.begin(), all.end(), task) == all.end()) all.push_back(task);
    records_[value].remote_takers = true;
  } else {
    peer_of(value, to).consumer = true;
  }
  if (records_[value].state == task_state::ready) ready_.hurry(value);
  if (records_[value].value) push(value, to, use == use_kind::take ? task : none);
}

template <class Any>
void basic_node<Any>::send_value(index value, int to, bool pushed) {
  const content_ptr& what = records_[value].value;
  value_message one;
  one.value = records_[value].what;
  one.pushed = pushed;
  if (what->failed() != nullptr) {
    one.failed = *what->failed();
  } else if (const content_ptr stays = why_it_stays(value, to)) {
    one.failed = *stays->failed();
  } else {
    const auto bytes = what->bytes();
    one.bytes.assign(bytes.begin(), bytes.end());
    one.hash = hash_to_send(value);
  }
  send(to, message_kind::val, one);
}

// Who gets the value cannot compute it: perhaps nobody has spawned the task there, and a source is
// known at its home only. [graph U4]
template <class Any>
std::optional<value_hash> basic_node<Any>::hash_to_send(index value) const {
  if (hashes_.empty()) return std::nullopt;
  const value_hash* const noted = noted_hash(value);
  return noted == nullptr ? std::nullopt : std::optional(*noted);
}

template <class Any>
void basic_node<Any>::on_credit(int from, const credit_message& one) {
  account& with = accounts_[static_cast<std::size_t>(from)];
  if (one.bytes > options_.credit - with.credit) out_of_place("more credit than there is");
  with.credit += one.bytes;
}

}  // namespace cohort::graph::machine
