// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// All scopes of one rank: packets, scopes by their id, tags of large values.

#include <cohort/graph/machine/message.hpp>
#include <cohort/graph/machine/names.hpp>
#include <cohort/graph/machine/node.hpp>
#include <cohort/graph/machine/outbox.hpp>
#include <cohort/graph/machine/tag_lists.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

/// Not an endpoint of MPI: what one rank knows of all open scopes. *Use*: make nodes with it; call
/// what has happened; do what each node's `actions` say; send what `take_message` gives, to each
/// rank for which no message is under way. It outlives its nodes.
template <class Any = void>
class basic_endpoint {
 public:
  using node_type = basic_node<Any>;

  basic_endpoint(int rank, int ranks, int tags_per_pair = 16)
      : rank_(rank),
        lost_(static_cast<std::size_t>(ranks)),
        left_(static_cast<std::size_t>(ranks)),
        out_(ranks),
        tags_(ranks, tags_per_pair) {}
  basic_endpoint(const basic_endpoint&) = delete;
  basic_endpoint& operator=(const basic_endpoint&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(lost_.size()); }

  // ---- the other ranks ----
  /// A packet. Throws std::system_error for bytes that are no packet, or that its sender cannot
  /// have sent. What came before them has been handled, and the endpoint is usable: call
  /// `lost(from)`.
  void receive(int from, std::span<const std::byte> packet) {
    if (is_lost(from)) return;  // [graph X1]
    wire::reader in(packet);
    while (in.left() != 0) {
      const auto scope = in.get<scope_id>();
      const std::span<const std::byte> messages = in.raw(in.count());
      if (!in.ok()) throw std::system_error(in.error(), "task graph");
      receive_messages(from, scope, messages);
    }
  }
  [[nodiscard]] bool has_message(int to) const noexcept { return !out_.empty(to); }
  /// Whether there is a message to anybody since the last call.
  [[nodiscard]] bool take_news() noexcept { return out_.take_news(); }
  /// Appends to `out`; false if there is nothing.
  bool take_message(int to, std::vector<std::byte>& out) { return out_.take(to, out); }
  /// A receive of `post_receive` has completed.
  void transferred(int from, int tag, std::vector<std::byte> bytes) {
    if (is_lost(from)) return;  // MPI has ended the receive [graph X1]
    const auto what = tags_.complete(from, tag);
    if (!what) return;
    if (what->node != nullptr) what->node->bulk(from, what->value, std::move(bytes));
    grant_next(from);
  }
  /// A send of `send_value` has completed, or was ended by MPI.
  /// Those with one tag complete in the order in which they began.
  void sent_value(int to, int tag) {
    const auto found = sending_.find(std::pair(to, tag));
    if (found == sending_.end()) return;
    found->second.pop_front();
    if (found->second.empty()) sending_.erase(found);
  }
  /// The transport says that a rank is dead: its receives are ended by MPI (graph X1).
  void lost(int rank, std::string why = "its loss was reported") {
    if (is_lost(rank)) return;
    lost_[static_cast<std::size_t>(rank)] = true;
    reasons_[rank] = std::move(why);
    tags_.lose(rank);
    out_.forget(rank);
    const std::vector<node_type*> nodes = nodes_;
    for (node_type* const one : nodes) one->disconnect(rank, why_lost(rank));
  }
  [[nodiscard]] bool is_lost(int rank) const noexcept {
    return lost_[static_cast<std::size_t>(rank)];
  }
  /// That rank has said that it has no scope open, and opens none any more (graph X6).
  void left(int rank) {
    left_[static_cast<std::size_t>(rank)] = true;
    for (node_type* const one : nodes_) one->heard_goodbye(rank);
  }
  [[nodiscard]] bool has_left(int rank) const noexcept {
    return left_[static_cast<std::size_t>(rank)];
  }
  /// Those that were made and are not destroyed, also when they have closed.
  [[nodiscard]] std::span<node_type* const> open_nodes() const noexcept { return nodes_; }

 private:
  friend class basic_node<Any>;
  friend struct inspector;
  void receive_messages(int from, const scope_id& scope, std::span<const std::byte> messages) {
    wire::reader in(messages);
    while (in.left() != 0) {
      const std::uint8_t number = in.byte();
      const std::uint64_t epoch = in.varint();
      const std::span<const std::byte> body = in.raw(in.count());
      if (number >= message_kinds) in.fail(wire_errc::bad_value);
      if (!in.ok()) throw std::system_error(in.error(), "task graph");
      const auto kind = static_cast<message_kind>(number);
      if (node_type* const one = find(scope)) {
        one->receive(from, kind, epoch, body);
      } else if (was_closed(scope)) {
        answer_goodbye(from, scope, kind, body);
      } else {  // [graph O1]
        parked_[scope].push_back({from, epoch, kind, {body.begin(), body.end()}});
      }
    }
  }
  [[nodiscard]] node_type* find(const scope_id& scope) const noexcept {
    for (node_type* const one : nodes_) {
      if (one->id() == scope) return one;
    }
    return nullptr;
  }
  [[nodiscard]] bool was_closed(const scope_id& scope) const {
    const auto last = opened_.find(scope.name);
    return last != opened_.end() && scope.opening <= last->second;
  }
  // A rank that has closed already answers a goodbye with its own, once per rank. [graph X4]
  void answer_goodbye(int from, const scope_id& scope, message_kind kind,
                      std::span<const std::byte> body) {
    if (kind != message_kind::cancel) return;
    if (!read_message<cancel_message>(body, ranks()).lost) return;
    if (!goodbyes_[scope].insert(from).second) return;
    out_.put(from, scope, message_kind::cancel, 0, body);
  }

  // ---- for nodes ----
  [[nodiscard]] const std::string& why_lost(int rank) const { return reasons_.at(rank); }
  void enter(node_type& one) {
    if (find(one.id()) != nullptr || was_closed(one.id())) {
      throw cohort::error(errc::invalid_argument, "task graph: a scope is opened twice");
    }
    std::uint64_t& last = opened_.try_emplace(one.id().name, one.id().opening).first->second;
    last = std::max(last, one.id().opening);
    nodes_.push_back(&one);
  }
  // What has come for it before it was open. [graph O1]
  [[nodiscard]] std::vector<parked_message> take_parked(const scope_id& scope) {
    const auto found = parked_.find(scope);
    if (found == parked_.end()) return {};
    std::vector<parked_message> all = std::move(found->second);
    parked_.erase(found);
    return all;
  }
  void leave(const node_type& one) {
    std::erase(nodes_, &one);
    tags_.forget_node(&one);
  }
  void said_goodbye(const scope_id& scope, int to) { goodbyes_[scope].insert(to); }
  void ask_tag(int from, const typename tag_lists<node_type>::request& what) {
    tags_.ask(from, what);
    grant_next(from);
  }
  void grant_next(int from) {
    while (auto next = tags_.next(from)) {
      const auto& [what, tag] = *next;
      what.node->granted(what.value, from, tag, what.size);
    }
  }
  void begin_sending(int to, int tag, content_ptr what) {
    sending_[std::pair(to, tag)].push_back(std::move(what));
  }
  [[nodiscard]] const char* keep_text(const std::string& text) {
    return texts_.insert(text).first->c_str();
  }

  int rank_;
  std::vector<bool> lost_;
  std::vector<bool> left_;
  std::map<int, std::string> reasons_;
  outbox out_;
  tag_lists<node_type> tags_;
  std::vector<node_type*> nodes_;
  std::map<std::uint64_t, std::uint64_t> opened_;  // by name: the last opening here
  std::map<scope_id, std::vector<parked_message>> parked_;
  std::map<scope_id, std::set<int>> goodbyes_;  // said, in scopes that have ended by a loss
  // By rank and tag. Two at a time, if the receiver has used the tag again before this rank hears
  // that the first one is complete.
  std::map<std::pair<int, int>, std::deque<content_ptr>> sending_;
  std::set<std::string> texts_;  // names of files
};

using endpoint = basic_endpoint<>;

}  // namespace cohort::graph::machine
