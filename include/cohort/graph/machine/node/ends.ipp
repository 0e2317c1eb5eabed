// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Cancellation, and the loss of a rank.

#include <cohort/graph/machine/node.hpp>

#include <cohort/core/error.hpp>

#include <optional>
#include <string>
#include <utility>

namespace cohort::graph::machine {

// ---- cancellation ----

template <class Any>
void basic_node<Any>::cancel(failure cause) {
  if (closed_) return;
  if (cause.code == errc{}) cause.code = errc::cancelled;
  if (cause.rank < 0) cause.rank = rank_;
  if (cause.text.empty()) cause.text = "no reason given";
  cancel_scope(std::move(cause), true);
  settle();
}

// A second one is ignored. Who gets it from another tells nobody. [graph C1]
template <class Any>
void basic_node<Any>::cancel_scope(failure cause, bool tell, bool once_more) {
  if (cancelled_) return;
  cancelled_ = true;
  cause_ = std::move(cause);
  cancelled_content_ = content_ptr(new failed_content(cancelled_failure()));
  for (int to = 0; tell && to < ranks_; ++to) {
    if (to != rank_) send(to, message_kind::cancel, cancel_message{false, *cause_});  // [graph C1]
  }
  if (!once_more) actions_.push_back({.kind = action_kind::cancelled});
  end_tasks();
  ready_.clear();
  unsent_.clear();
  unsent_claims_.clear();
  unsent_count_ = 0;
  for (announcement& one : announced_) one.fresh = false;
  fresh_.clear();
  for (account& one : accounts_) one.digest.reset();
  compare_count_ = 0;
  asking_.clear();
  asked_.clear();  // nobody answers any more [graph C3]
  unknown_.clear();
  unknown_count_ = 0;
  owner_.tags_.forget_waiting(this);  // queued grants are forgotten [graph C3]
  queued_ = 0;
  for (index slot = 0; slot < awaits_.size(); ++slot) {
    if (awaits_[slot].waits) end_await(slot, cancelled_content_, false);  // [graph C2]
  }
}

// Those that wait or are ready do not run. [graph C2]
template <class Any>
void basic_node<Any>::end_tasks() {
  for (index at = 0; at < records_.size(); ++at) {
    record& one = records_[at];
    one.waiters = none;
    one.unknown = one.unsent = false;
    if (one.state != task_state::waiting && one.state != task_state::ready) continue;
    one.state = task_state::done;
    definitions_[one.definition].drop_inputs();
  }
  waiting_ = 0;
}

template <class Any>
void basic_node<Any>::on_cancel(int from, const cancel_message& one) {
  if (!one.lost) return cancel_scope(one.cause, false);
  accounts_[static_cast<std::size_t>(from)].goodbye = true;  // [graph X2]
  if (!closed_) lose(one.cause.rank, one.cause.text);
}

// ---- loss ----

// The transport says that a rank is dead. Receives that are not posted yet need not be: their
// grants have not left. [graph X1]
template <class Any>
void basic_node<Any>::disconnect(int rank, const std::string& why) {
  std::erase_if(actions_, [&](const action& one) {
    return one.kind == action_kind::post_receive && one.rank == rank;
  });
  lose(rank, why);
  settle();
}

// The transport says that a rank is dead, or another rank has said so. [graph X1] [graph X2]
template <class Any>
void basic_node<Any>::lose(int rank, const std::string& why) {
  account& other = accounts_[static_cast<std::size_t>(rank)];
  if (std::exchange(other.lost, true) && broken_) return;
  other.receives = 0;
  if (closed_ || broken_) return;
  failure cause;
  cause.code = errc::peer_lost;
  cause.rank = rank;
  cause.text = why;
  break_up(std::move(cause));
}

// The rank has left all scopes. [graph X6]
template <class Any>
void basic_node<Any>::heard_goodbye(int rank) {
  accounts_[static_cast<std::size_t>(rank)].goodbye = true;
  // It has not closed this scope if that needs what this rank has not contributed yet, or the DOWN
  // of a parent, which would be here.
  if (!closed_ && !broken_ && (!up_ || rank == place_.parent)) {
    failure cause;
    cause.code = errc::peer_lost;
    cause.rank = rank;
    cause.text = "it has left, and opens no scope any more";
    break_up(std::move(cause));
  }
  settle();
}

// The scope breaks: cancelled, and a goodbye to all that are not known to be lost. [graph X2]
template <class Any>
void basic_node<Any>::break_up(failure cause) {
  broken_ = true;
  const bool once_more = std::exchange(cancelled_, false);
  cancel_scope(std::move(cause), false, once_more);
  for (int to = 0; to < ranks_; ++to) {
    if (to == rank_ || accounts_[static_cast<std::size_t>(to)].lost) continue;
    if (owner_.has_left(to)) continue;
    owner_.said_goodbye(id_, to);
    send(to, message_kind::cancel, cancel_message{true, *cause_});
  }
}

// Ends without a wave. [graph X3]
template <class Any>
void basic_node<Any>::leave() {
  const std::optional<window_end> asked = asked_for();
  if (busy_ != 0 || running_ != 0 || !asked) return;
  if (*asked == window_end::close) {
    for (int other = 0; other < ranks_; ++other) {
      const account& one = accounts_[static_cast<std::size_t>(other)];
      if (other == rank_) continue;
      if (one.receives != 0 || (!one.lost && !one.goodbye)) return;
    }
    closed_ = true;
  }
  report_ = {};
  report_.cancelled = cause_;
  tell_window_ended();
}

}  // namespace cohort::graph::machine
