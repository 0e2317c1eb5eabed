// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A few nodes, connected at once, that write down in words what they are told to
/// do.

#include "protocol/support.hpp"

#include <cohort/protocol.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace protocol_test {

using bytes = std::vector<std::byte>;

inline signature sum_of(std::int64_t count) {
  signature sig;
  sig.element = 10;
  sig.element_size = 4;
  sig.dimensions = {count};
  return sig;
}

/// One process set of all ranks on a balanced tree. Messages are delivered by `settle`.
class fake_job {
 public:
  fake_job(int ranks, int radix, const node_options& options = {}) : logs_(at(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
      nodes_.emplace_back(tree::balanced(rank, ranks, radix),
                          std::vector<rank_set>{rank_set::span(0, ranks - 1)}, options);
    }
  }

  node& node_of(int rank) { return nodes_[at(rank)]; }
  /// What a rank has been told, in words.
  const std::vector<std::string>& log(int rank) { return logs_[at(rank)]; }

  submission submit(int rank, const std::string& name, const signature& sig = sum_of(4),
                    std::int64_t size = 1) {
    const call_site site{"rank" + std::to_string(rank) + ".cpp", 1};
    return node_of(rank).submit(0, name, sig, 1, std::span(&size, 1), &site);
  }
  void submit_all(const std::string& name) {
    for (int rank = 0; rank < static_cast<int>(nodes_.size()); ++rank) submit(rank, name);
  }
  submission submit_in(int rank, std::uint32_t set, const std::string& name,
                       const signature& sig = sum_of(4)) {
    return node_of(rank).submit(set, name, sig, 1);
  }
  void submit_silently(int rank, const std::string& name, const signature& sig) {
    node_of(rank).submit(0, name, sig, 1);
  }

  /// A rank neither sends nor receives any more.
  void stop(int rank) { stopped_.insert(rank); }

  /// Delivers until nothing moves.
  void settle() {
    do {
      for (int rank = 0; rank < static_cast<int>(nodes_.size()); ++rank) listen(rank);
    } while (exchange());
  }
  /// The same without words; returns the number of operations started.
  std::size_t settle_silently() {
    std::size_t started = 0;
    do {
      for (node& each : nodes_) {
        started += each.actions().size();
        each.finished(each.actions().size());
        each.clear_actions();
      }
    } while (exchange());
    return started;
  }

  // One lap: every rank sends what it has.
  bool exchange() {
    bool moved = false;
    for (int to = 0; to < static_cast<int>(nodes_.size()); ++to) {
      if (stopped_.contains(to)) continue;
      const tree& shape = nodes_[at(to)].shape();
      if (!shape.is_root()) moved = send(shape.parent(), to) || moved;
      for (const int child : shape.children()) moved = send(child, to) || moved;
    }
    return moved;
  }

  struct sent_message {
    int from;
    bytes message;
    node before;
  };
  bool record = false;
  std::vector<sent_message> recorded;
  std::size_t sent = 0;

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  bool send(int from, int to) {
    message_.clear();
    if (stopped_.contains(from) || !nodes_[at(from)].take_message(to, message_)) return false;
    if (record) recorded.push_back({from, message_, nodes_[at(to)]});
    nodes_[at(to)].receive(from, message_);
    ++sent;
    return true;
  }

  void listen(int rank) {
    node& self = node_of(rank);
    std::size_t done = 0;
    for (const action& one : self.actions()) {
      std::string name = one.name == none ? "" : self.name(one.name).text;
      std::string text;
      switch (one.kind) {
        case action_kind::start: {
          ++done;
          text = name + "#" + std::to_string(one.number);
          if (one.token == 0) text += " neutral";
          if (one.made != none) text += " makes set " + std::to_string(one.made);
          if (one.count != self.set(one.set).size) text += " of " + std::to_string(one.count);
          if (is_sized(self.entry(one.entry).sig.kind)) {
            text += one.known ? " knows " + std::to_string(one.reference) : " exchanges";
          }
          break;
        }
        case action_kind::start_join:
          ++done;
          text = "joined, took " + std::to_string(one.count);
          break;
        case action_kind::fail:
          text = describe(name, *self.verdict_of(one));
          if (one.withdrew) text += ", own: " + std::string(name_of(one.own_reason));
          break;
        case action_kind::fail_join:
          text = describe("x", *self.verdict_of(one));
          text = "join failed" + text.substr(3);
          break;
        case action_kind::drain:
          text = "drain " + name + ": " + std::to_string(one.number) + " made, " +
                 std::to_string(one.count) + " to " + std::to_string(one.log_count);
          break;
        case action_kind::report:
          text = "report:";
          for (const stall_report_row& row : self.report_of(one).rows) {
            text += " " + row.name + "#" + std::to_string(row.number) + " ready " +
                    row.ready[0].ranks.str() + " missing " + row.missing.str();
          }
          break;
        case action_kind::end_set:
          text = "set " + std::to_string(one.set) + " has ended";
          break;
        case action_kind::renumber:
          continue;
        case action_kind::adjust:
          text = "adjusted";
          for (const std::uint64_t number : self.adjustment_of(one).numbers) {
            text += " " + std::to_string(number);
          }
          break;
        case action_kind::close:
          text = one.detail == none ? "closed" : "closed by fault";
          break;
      }
      logs_[at(rank)].push_back(text);
    }
    self.clear_actions();
    self.finished(done);
  }

  std::vector<node> nodes_;
  std::vector<std::vector<std::string>> logs_;
  std::set<int> stopped_;
  bytes message_;
};

}  // namespace protocol_test
