// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Messages as they come, and what follows each event.

#include <cohort/graph/machine/node.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

// ---- out ----

template <class Any>
template <class Message>
void basic_node<Any>::send(int to, message_kind kind, const Message& what) {
  body_.clear();
  wire::writer(body_).put(what);
  send_body(to, kind, body_);
}

template <class Any>
void basic_node<Any>::send_body(int to, message_kind kind, std::span<const std::byte> body) {
  if (is_counted(kind)) ++sent_;  // [graph T1]
  if (!owner_.is_lost(to)) owner_.out_.put(to, id_, kind, epoch_, body);
}

// ---- in ----

template <class Any>
void basic_node<Any>::receive(int from, message_kind kind, std::uint64_t epoch,
                              std::span<const std::byte> body) {
  if (accounts_[static_cast<std::size_t>(from)].lost) return;  // [graph X1]
  if (is_counted(kind)) ++received_;                           // [graph T1]
  if (waits_for_epoch(kind) && epoch > epoch_) {               // [graph T7]
    parked_.push_back({from, epoch, kind, {body.begin(), body.end()}});
  } else {
    handle(from, kind, body);
  }
  settle();
}

// What was parked, in order, as far as this rank has got.
template <class Any>
void basic_node<Any>::unpark() {
  for (parked_message& one : std::exchange(parked_, {})) {
    if (waits_for_epoch(one.kind) && one.epoch > epoch_) {  // [graph T7]
      parked_.push_back(std::move(one));
      continue;
    }
    try {
      handle(one.from, one.kind, one.body);
    } catch (const std::system_error& problem) {
      lose(one.from, "it has sent bytes that are no message: " + std::string(problem.what()));
    }
  }
}

template <class Any>
void basic_node<Any>::handle(int from, message_kind kind, std::span<const std::byte> body) {
  const auto read = [&]<class Message>(Message) { return read_message<Message>(body, ranks_); };
  if (kind == message_kind::grant) {  // always honoured [graph L3]
    if (closed_) out_of_place("a grant after the end");
    return on_grant(from, read(grant_message{}));
  }
  if ((closed_ || broken_) && kind != message_kind::cancel) return;  // [graph X3]
  const bool ends =
      kind == message_kind::cancel || kind == message_kind::up || kind == message_kind::down;
  if (cancelled_ && !ends) return;  // [graph C3]
  switch (kind) {
    case message_kind::digest:
      return on_digest(from, read(digest_message{}));
    case message_kind::diff:
      return on_diff(from);
    case message_kind::list:
      return on_list(from, read(list_message{}));
    case message_kind::want:
      return on_want(from, read(want_message{}));
    case message_kind::val:
      return on_val(from, read(value_message{}));
    case message_kind::offer:
      return on_offer(from, read(offer_message{}));
    case message_kind::grant:
      return;
    case message_kind::credit:
      return on_credit(from, read(credit_message{}));
    case message_kind::release:
      return on_release(from, read(release_message{}));
    case message_kind::taken:
      return on_taken(from, read(taken_message{}));
    case message_kind::cancel: {
      const cancel_message one = read(cancel_message{});
      if (closed_) return owner_.answer_goodbye(from, id_, kind, body);  // [graph X4]
      return on_cancel(from, one);
    }
    case message_kind::up:
      return on_up(from, read(contribution{}));
    case message_kind::down:
      return on_down(from, read(verdict{}), body);
    case message_kind::ask:
      return on_ask(from, read(ask_message{}));
    case message_kind::tell:
      return on_tell(from, read(tell_message{}));
  }
}

// The record of a value that is at home where the message comes from.
template <class Any>
std::uint32_t basic_node<Any>::known(const key& what, int home, const char* verb) {
  if (what.home != home || home == rank_) out_of_place(std::string(verb) + " from another home");
  return records_.make(what);
}

// ---- what follows each event ----

template <class Any>
void basic_node<Any>::settle_slowly() {
  do {
    run_wakes();  // [graph F3]
    if (first_failure_here_) {
      cancel_scope(*std::exchange(first_failure_here_, {}), true);  // [graph F4]
      run_wakes();
    }
    if (closed_) return;
    if (broken_) return leave();  // [graph X3]
    flush_when_idle();
  } while (!is_patient() && can_contribute() && contribute());
}

template <class Any>
void basic_node<Any>::run_wakes() {
  for (std::size_t i = 0; i < wakes_.size(); ++i) {
    const wake_up one = std::move(wakes_[i]);
    wake(one.value, one.what);
  }
  wakes_.clear();
}

// Wants, then announcements, then comparisons. [graph T2]
template <class Any>
void basic_node<Any>::flush_when_idle() {
  if (!idle()) return;
  flush_wants();
  flush_announcements();
  flush_comparisons();
}

}  // namespace cohort::graph::machine
