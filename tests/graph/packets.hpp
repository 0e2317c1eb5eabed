// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the checker reads of the messages: how many there are of each kind, which values
/// travel, and how much credit is in use.

#include "graph/inspector.hpp"
#include "graph/job.hpp"
#include "graph/place.hpp"

#include <cohort/graph/machine/message.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace graph_test {

inline constexpr std::array<std::string_view, message_kinds + 1> kind_names{
    "DIGEST",  "DIFF",  "LIST",   "WANT", "VAL",  "OFFER", "GRANT", "CREDIT",
    "RELEASE", "TAKEN", "CANCEL", "UP",   "DOWN", "ASK",   "TELL",  "(bulk)"};

class packet_watch {
 public:
  packet_watch(const job& of, notes& all) : job_(of), notes_(all) {
    for (std::size_t i = 0; i < of.scopes.size(); ++i) windows_.emplace_back(1, 0);
    pairs_.resize(of.scopes.size());
    digests_.resize(of.scopes.size());
  }

  /// The root has begun an epoch.
  void epoch(int scope, std::uint64_t number, int window) {
    std::vector<int>& known = windows_[static_cast<std::size_t>(scope)];
    known.resize(number + 1, known.back());
    known[number] = window;
  }

  void sent(int from, int to, std::span<const std::byte> bytes) {
    read_packet(bytes, [&](const message_view& one) {
      ++counts_[static_cast<std::size_t>(one.kind)];
      describe("sends", from, to, one);
      if (one.kind == message_kind::digest) {
        ++digests_[static_cast<std::size_t>(scope_of(one.id))][{window_of(one), from}];
      }
      if (one.kind != message_kind::val) return;
      const auto value = read_message<value_message>(one.body, job_.ranks);
      if (value.failed) return;
      note_pair(scope_of(one.id), window_of(one), value.value, to);
      if (!value.pushed) return;
      std::uint64_t& used = credit(one, from, to).pushed;
      used += value.bytes.size();
      check(used <= job_.credit * unit, "U2 rank ", from, " has pushed ", used, " bytes to rank ",
            to, " without credit");
    });
  }
  void delivered(int from, int to, std::span<const std::byte> bytes) {
    if (notes_.dead.contains(from)) return;
    read_packet(bytes, [&](const message_view& one) {
      describe("comes", from, to, one);
      if (one.kind != message_kind::credit) return;
      const auto back = read_message<credit_message>(one.body, job_.ranks);
      std::uint64_t& used = credit(one, to, from).pushed;
      check(used >= back.bytes, "U3 rank ", from, " gives rank ", to, " more credit than there is");
      used -= back.bytes;
    });
  }
  void large(int scope, int window, const key& value, int to) {
    ++counts_.back();
    note_pair(scope, window, value, to);
  }
  /// Whether a packet has a message of the scope that the wave counts (graph T1).
  [[nodiscard]] static bool counts(std::span<const std::byte> bytes, int scope) {
    bool result = false;
    read_packet(bytes, [&](const message_view& one) {
      result = result || (scope_of(one.id) == scope && is_counted(one.kind));
    });
    return result;
  }

  [[nodiscard]] std::uint64_t count(message_kind kind) const {
    return counts_[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] std::map<std::string_view, std::uint64_t> counts() const {
    std::map<std::string_view, std::uint64_t> result;
    for (std::size_t i = 0; i < counts_.size(); ++i) result[kind_names[i]] = counts_[i];
    return result;
  }
  /// By window, value and rank: a value that was sent there.
  [[nodiscard]] const std::set<std::tuple<int, key, int>>& pairs(int scope) const {
    return pairs_[static_cast<std::size_t>(scope)];
  }
  /// By window and rank.
  [[nodiscard]] const std::map<std::pair<int, int>, int>& digests(int scope) const {
    return digests_[static_cast<std::size_t>(scope)];
  }

 private:
  struct ledger {
    std::uint64_t pushed = 0;  // bytes without an answer
  };
  [[nodiscard]] int window_of(const message_view& one) const {
    const std::vector<int>& known = windows_[static_cast<std::size_t>(scope_of(one.id))];
    return one.epoch < known.size() ? known[one.epoch] : known.back();
  }
  ledger& credit(const message_view& one, int home, int consumer) {
    return ledgers_[{scope_of(one.id), window_of(one), home, consumer}];
  }
  void note_pair(int scope, int window, const key& value, int to) {
    const bool first = pairs_[static_cast<std::size_t>(scope)].insert({window, value, to}).second;
    check(first, "W3 ", value, " of window ", window, " is sent twice to rank ", to);
  }
  void describe(const char* what, int from, int to, const message_view& one) const {
    if (!notes_.tracing) return;
    notes_.trace("scope ", scope_of(one.id), " epoch ", one.epoch, ": rank ", from, " -> ", to, ' ',
                 what, ' ', kind_names[static_cast<std::size_t>(one.kind)], described(one));
  }
  [[nodiscard]] std::string described(const message_view& one) const;

  const job& job_;
  notes& notes_;
  std::array<std::uint64_t, message_kinds + 1> counts_{};
  std::vector<std::vector<int>> windows_;  // by scope and epoch
  std::vector<std::set<std::tuple<int, key, int>>> pairs_;
  std::vector<std::map<std::pair<int, int>, int>> digests_;
  std::map<std::tuple<int, int, int, int>, ledger> ledgers_;
};

inline std::string packet_watch::described(const message_view& one) const {
  std::ostringstream text;
  const auto named = [&](const key& k) -> std::ostream& {
    const auto found = notes_.labels.find(k);
    if (found == notes_.labels.end()) return text << ' ' << k;
    return text << " f" << found->second.family << '(' << found->second.index << ")@" << k.home;
  };
  const int n = job_.ranks;
  switch (one.kind) {
    case message_kind::list:
      for (const listed_task& task : read_message<list_message>(one.body, n).tasks)
        named(task.what);
      break;
    case message_kind::want: {
      const auto want = read_message<want_message>(one.body, n);
      named(want.value);
      if (want.taker) named(want.taker->what) << " takes it";
      break;
    }
    case message_kind::val: {
      const auto value = read_message<value_message>(one.body, n);
      named(value.value) << (value.pushed ? " pushed" : "") << (value.failed ? " failed" : "");
      break;
    }
    case message_kind::offer:
      named(read_message<offer_message>(one.body, n).value);
      break;
    case message_kind::grant: {
      const auto grant = read_message<grant_message>(one.body, n);
      named(grant.value) << " tag " << grant.tag;
      break;
    }
    case message_kind::credit:
      text << ' ' << read_message<credit_message>(one.body, n).bytes;
      break;
    case message_kind::release:
      named(read_message<release_message>(one.body, n).value);
      break;
    case message_kind::taken: {
      const auto taken = read_message<taken_message>(one.body, n);
      named(taken.value) << " by";
      named(taken.winner.what) << (taken.gone ? " gone" : "");
      break;
    }
    case message_kind::up: {
      const auto up = read_message<contribution>(one.body, n);
      text << " sent " << up.sent << " received " << up.received << " waiting " << up.waiting
           << " failed " << up.failed << " unknown";
      for (const key& k : up.unknown) named(k);
      break;
    }
    case message_kind::down: {
      static constexpr const char* names[] = {"more",  "not_spawned", "cycle",
                                              "again", "fence",       "close"};
      const auto down = read_message<verdict>(one.body, n);
      text << ' ' << names[static_cast<int>(down.kind)];
      for (const key& k : down.unknown) named(k);
      break;
    }
    default:
      break;
  }
  return text.str();
}

}  // namespace graph_test
