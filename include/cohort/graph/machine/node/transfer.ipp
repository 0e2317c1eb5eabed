// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Large values: offered, granted, sent with a tag.

#include <cohort/graph/machine/node.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

// ---- home ----

// A large value exists. [graph L1]
template <class Any>
void basic_node<Any>::offer(index value, int to) {
  const record& one = records_[value];
  send(to, message_kind::offer,
       offer_message{one.what, one.value->bytes().size(), hash_to_send(value)});
}

// Always honoured: the receive is posted. [graph L3]
template <class Any>
void basic_node<Any>::on_grant(int from, const grant_message& one) {
  const index value = one.value.home == rank_ ? records_.find(one.value) : none;
  if (value == none) out_of_place("a grant for a value that was not offered");
  if (!owner_.tags_.is_tag(one.tag)) out_of_place("a grant with a tag that there is not");
  content_ptr what = records_[value].value;
  if (!what) {
    if (const auto kept = held_.find(value); kept != held_.end()) what = kept->second;
  }
  peer& to = peer_of(value, from);
  if (!what || what->failed() != nullptr || !to.sent || to.given) {
    out_of_place("a grant for a value that was not offered");
  }
  const int tag = static_cast<int>(one.tag);
  to.given = true;
  ++sent_;  // [graph T1]
  owner_.begin_sending(from, tag, what);
  const std::size_t size = what->bytes().size();
  actions_.push_back({.kind = action_kind::send_value,
                      .what = std::move(what),
                      .rank = from,
                      .tag = tag,
                      .bytes = size,
                      .value = one.value});
  if (!has_open_offers(value)) held_.erase(value);
}

template <class Any>
bool basic_node<Any>::has_open_offers(index value) const {
  for (index at = records_[value].peers; at != none; at = peers_[at].next) {
    if (peers_[at].sent && !peers_[at].given) return true;
  }
  return false;
}

// ---- consumer ----

// Granted when somebody here needs it, else parked. [graph L2]
template <class Any>
void basic_node<Any>::on_offer(int from, const offer_message& one) {
  const index value = known(one.value, from, "an offer");
  const record& what = records_[value];
  if (what.value || what.gone || offers_.contains(value)) out_of_place("a second offer");
  if (one.hash) hashes_[value] = *one.hash;  // [graph U4]
  if (what.wanted) {
    forget_want(value);
    ask_tag(value, static_cast<std::size_t>(one.size));
  } else {
    offers_[value] = static_cast<std::size_t>(one.size);
  }
}

// Without a free tag it queues. [graph L2]
template <class Any>
void basic_node<Any>::ask_tag(index value, std::size_t size) {
  ++queued_;
  owner_.ask_tag(records_[value].what.home, {this, value, size});
}

// The receive is posted before the grant leaves. [graph L2]
template <class Any>
void basic_node<Any>::granted(index value, int from, int tag, std::size_t size) {
  --queued_;
  ++accounts_[static_cast<std::size_t>(from)].receives;
  actions_.push_back({.kind = action_kind::post_receive,
                      .rank = from,
                      .tag = tag,
                      .bytes = size,
                      .value = records_[value].what});
  send(from, message_kind::grant,
       grant_message{records_[value].what, static_cast<std::uint32_t>(tag)});
}

template <class Any>
void basic_node<Any>::bulk(int from, index value, std::vector<std::byte> bytes) {
  account& other = accounts_[static_cast<std::size_t>(from)];
  if (other.lost) return;  // another rank has said so, and it is counted no more [graph X1]
  ++received_;             // [graph T1]
  --other.receives;
  if (!broken_ && !closed_) arrive(value, content_ptr(new arrived_content(std::move(bytes))));
  settle();
}

}  // namespace cohort::graph::machine
