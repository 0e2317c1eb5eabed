// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the checker sees of nodes, endpoints and packets that programs do not.

#include "graph/job.hpp"
#include "graph/read_packet.hpp"
#include "graph/values.hpp"

#include <cohort/core/wire.hpp>
#include <cohort/graph/machine/endpoint.hpp>
#include <cohort/graph/machine/message.hpp>
#include <cohort/graph/machine/node.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

/// Looks into a node and an endpoint.
struct inspector {
  static std::uint64_t epoch(const node& self) { return self.epoch_; }
  static bool broken(const node& self) { return self.broken_; }
  /// How many there are of all that a window may have and the next one may not (graph R2).
  static std::vector<std::size_t> kept(const node& self) {
    std::size_t values = 0;
    for (std::uint32_t i = 0; i < self.records_.size(); ++i)
      values += self.records_[i].value ? 1 : 0;
    const std::size_t ready = self.ready_.empty() ? 0 : 1;
    return {self.records_.size(),
            values,
            self.definitions_.size(),
            self.peers_.size(),
            self.declarations_.size(),
            self.takers_.size(),
            self.unknown_.size(),
            self.unsent_.size(),
            self.hashes_.size(),
            self.offers_.size(),
            self.held_.size(),
            self.asking_.size(),
            self.remote_takers_.size(),
            self.own_.size(),
            ready,
            self.running_,
            self.diverged_.size()};
  }
  /// Numbers for the names that it knows.
  static std::size_t words(const node& self) { return self.records_.words_.size(); }
  /// Values that are at home here, and here.
  static std::vector<key> values_of(const node& self, int rank) {
    std::vector<key> result;
    for (std::uint32_t i = 0; i < self.records_.size(); ++i) {
      const record& one = self.records_[i];
      if (one.value && one.what.home == rank) result.push_back(one.what);
    }
    return result;
  }
  static bool holds(const node& self) { return !self.held_.empty(); }
  static std::size_t parked(const node& self) { return self.parked_.size(); }
  static bool has_value_of_another_window(const node& self, int window) {
    for (std::uint32_t i = 0; i < self.records_.size(); ++i) {
      const content_ptr& value = self.records_[i].value;
      if (!value || value->failed() != nullptr) continue;
      if (graph_test::value_of(*value).identity().window != window) return true;
    }
    return false;
  }
  static bool tags_are_back(const endpoint& self, int rank, int tags) {
    const auto& one = self.tags_.senders_[static_cast<std::size_t>(rank)];
    return static_cast<int>(one.free.size()) == tags && one.waiting.empty() && one.used.empty();
  }
  /// Numbers that tell states apart. What only remembers an order in which nothing depends on it
  /// does not count.
  static std::uint64_t digest(const node& self);
  static std::uint64_t digest(const endpoint& self);

 private:
  using mixer = graph_test::hasher;
  static void mix(mixer& hash, const node& self, std::uint32_t record) {
    if (record == none) {
      hash(1);
    } else {
      hash(self.records_[record].what);
    }
  }
  static void mix(mixer& hash, const std::string& text) { hash(std::hash<std::string>{}(text)); }
  static void mix(mixer& hash, std::span<const std::byte> bytes) {
    mix(hash, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));  // NOLINT
  }
  static void mix(mixer& hash, const content_ptr& one) {
    if (!one) {
      hash(2);
    } else if (const failure* why = one->failed()) {
      hash(3)(static_cast<std::uint64_t>(why->code))(why->root);
    } else {
      const graph_test::test_value& value = graph_test::value_of(*one);
      hash(value.identity().of)(value.identity().value)(value.moved() ? 1 : 0)(one.use_count());
    }
  }
  static void mix(mixer& hash, const node& self, const taker& one) {
    hash(one.what)(one.await ? 1 : 0)(one.unsent ? 1 : 0);
    static_cast<void>(self);
  }
  static void mix_definition(mixer& hash, const node& self, std::uint32_t at) {
    if (at == none) {
      hash(4);
      return;
    }
    stored_definition& one = const_cast<node&>(self).definitions_[at];  // NOLINT: only looks
    hash(one.function)(one.result)(one.count)(one.travels ? 1 : 0)(one.source ? 1 : 0);
    mix(hash, one.arguments());
    for (std::uint32_t i = 0; i < one.count; ++i) {
      const edge& each = one.edges()[i];
      mix(hash, self, each.value);
      hash(static_cast<std::uint64_t>(each.use))(each.unclaimed ? 1 : 0);
      if (one.here) mix(hash, one.inputs()[i].what);
    }
  }
  static std::uint64_t digest_of_record(const node& self, const record& one);
  static void mix_tables(mixer& hash, const node& self);
  static void mix_wave(mixer& hash, const node& self);
};

inline std::uint64_t inspector::digest_of_record(const node& self, const record& one) {
  mixer hash;
  hash(one.what);
  mix(hash, one.value);
  mix_definition(hash, self, one.definition);
  if (one.waiters != none) {
    std::uint32_t at = one.waiters;
    do {
      at = self.definitions_.edge_at(at).next;
      mix(hash, self, self.definitions_.edge_at(at).owner);
    } while (at != one.waiters);
  }
  hash(5);
  if (one.awaits != none) {
    std::uint32_t at = one.awaits;
    do {
      at = self.awaits_[at].next;
      hash(self.awaits_[at].who)(self.awaits_[at].takes ? 1 : 0);
    } while (at != one.awaits);
  }
  hash(one.missing)(one.unclaimed);
  if (one.taker != none) mix(hash, self, self.takers_[one.taker]);
  std::map<int, int> peers;
  for (std::uint32_t at = one.peers; at != none; at = self.peers_[at].next) {
    const peer& each = self.peers_[at];
    peers[each.rank] =
        (each.asked ? 1 : 0) + (each.consumer ? 2 : 0) + (each.sent ? 4 : 0) + (each.given ? 8 : 0);
  }
  for (const auto& [rank, flags] : peers) {
    hash(static_cast<std::uint64_t>(rank))(static_cast<std::uint64_t>(flags));
  }
  hash(6);
  for (std::uint32_t at = one.declared; at != none; at = self.declarations_[at].next) {
    hash(static_cast<std::uint64_t>(self.declarations_[at].rank));
    mix_definition(hash, self, self.declarations_[at].definition);
  }
  hash(static_cast<std::uint64_t>(one.state));
  std::uint64_t flags = 0;
  for (const bool each : {one.decided, one.source, one.spawned, one.takes, one.wanted, one.unsent,
                          one.unasked, one.gone, one.unknown, one.remote_takers}) {
    flags = 2 * flags + (each ? 1 : 0);
  }
  return hash(flags).value();
}

inline void inspector::mix_tables(mixer& hash, const node& self) {
  for (const auto& one : self.producers_) {
    hash(one.awaits)(one.ended ? 1 : 0)(one.ending ? 1 + static_cast<std::uint64_t>(*one.ending)
                                                   : 0);
  }
  for (const auto& one : self.announced_) {
    hash(one.sum.count)(one.sum.sum.low)(one.fresh ? 1 : 0)(one.lists ? 1 : 0);
    for (const std::uint32_t task : one.unlisted) mix(hash, self, task);
  }
  for (const auto& one : self.accounts_) {
    hash(one.credit)(one.owed)(one.receives)(one.digest ? one.digest->sum.low + 1 : 0);
    hash((one.goodbye ? 2U : 0U) + (one.lost ? 4U : 0U) + 8 * one.agreed);
  }
  std::uint64_t any_order = 0;
  for (const std::uint32_t one : self.own_) any_order += mixer()(self.records_[one].what).value();
  for (const std::uint32_t one : self.unknown_)
    any_order ^= mixer()(8)(self.records_[one].what).value();
  for (const auto& [value, size] : self.offers_)
    any_order += mixer()(9)(self.records_[value].what).value();
  for (const auto& [value, what] : self.held_)
    any_order += mixer()(10)(self.records_[value].what).value();
  hash(any_order);
  for (const std::uint32_t one : self.unsent_) mix(hash, self, one);
  for (const auto& [value, who] : self.unsent_claims_) {
    mix(hash, self, value);
    mix(hash, self, self.takers_[who]);
  }
  std::map<key, std::uint64_t> asking;
  for (const auto& [value, all] : self.asking_) {
    mixer each;
    for (const std::uint32_t one : all) mix(each, self, self.takers_[one]);
    asking[self.records_[value].what] += each.value();
  }
  for (const auto& [value, all] : self.remote_takers_) {
    mixer each;
    for (const std::uint32_t one : all) mix(each, self, one);
    asking[self.records_[value].what] += 3 * each.value();
  }
  for (const auto& [value, all] : asking) hash(value)(all);
}

inline void inspector::mix_wave(mixer& hash, const node& self) {
  const auto mix_bytes = [&](const auto& message) {
    std::vector<std::byte> bytes;
    wire::writer(bytes).put(message);
    mix(hash, bytes);
  };
  hash(self.sent_)(self.received_)(self.up_ ? 1 : 0)(self.told_options_ ? 1 : 0);
  for (const auto& one : self.ups_) {
    hash(one ? 1 : 0);
    if (one) mix_bytes(*one);
  }
  hash(self.root_.last_ ? 1 + self.root_.last_->first : 0);
  hash(self.root_.last_ ? 1 + self.root_.last_->second : 0)(self.root_.reports_.size());
  for (const auto& [name, known] : self.root_.named_) hash(known.size());
  for (const auto& [which, item] : self.root_.reports_) mix(hash, item.text);
  for (const report_item& item : self.reports_) mix(hash, item.text);
  hash(self.reports_.size())(self.own_reports_);
  for (const family_record& one : self.records_.families()) {
    mix(hash, one.facts.name);
    hash((one.mine ? 1U : 0U) + (one.named ? 2U : 0U) + (one.told ? 4U : 0U));
  }
  for (const auto& one : self.parked_) {
    hash(static_cast<std::uint64_t>(one.from))(one.epoch)(static_cast<std::uint64_t>(one.kind));
    mix(hash, one.body);
  }
  hash((self.cancelled_ ? 1U : 0U) + (self.broken_ ? 2U : 0U) + (self.closed_ ? 4U : 0U));
  if (self.cause_) hash(static_cast<std::uint64_t>(self.cause_->rank + 1));
}

inline std::uint64_t inspector::digest(const node& self) {
  mixer hash;
  hash(self.window_)(self.epoch_)(self.running_)(self.waiting_)(self.failed_)(self.busy_);
  std::vector<std::uint64_t> records;
  for (std::uint32_t i = 0; i < self.records_.size(); ++i) {
    records.push_back(digest_of_record(self, self.records_[i]));
  }
  std::sort(records.begin(), records.end());
  for (const std::uint64_t one : records) hash(one);
  ready_queue ready = self.ready_;
  while (!ready.empty()) mix(hash, self, ready.take());
  mix_tables(hash, self);
  mix_wave(hash, self);
  return hash.value();
}

inline std::uint64_t inspector::digest(const endpoint& self) {
  mixer hash;
  for (std::size_t i = 0; i < self.lost_.size(); ++i) hash(self.lost_[i] ? 1 : 0);
  for (const auto& one : self.tags_.senders_) {
    for (const int tag : one.free) hash(static_cast<std::uint64_t>(tag));
    for (const auto& [tag, each] : one.used) {
      hash(static_cast<std::uint64_t>(tag));
      if (each.node != nullptr) mix(hash, *each.node, each.value);
    }
    for (const auto& each : one.waiting) mix(hash, *each.node, each.value);
    hash(11);
  }
  for (const auto& [scope, all] : self.parked_) {
    hash(scope.name);
    for (const auto& one : all) {
      hash(static_cast<std::uint64_t>(one.from))(one.epoch)(static_cast<std::uint64_t>(one.kind));
      mix(hash, one.body);
    }
  }
  for (const auto& [scope, all] : self.goodbyes_) {
    hash(scope.name);
    for (const int one : all) hash(static_cast<std::uint64_t>(one));
  }
  return hash.value();
}

}  // namespace cohort::graph::machine

namespace graph_test {

/// The messages of a packet in packets of their own.
inline std::vector<std::vector<std::byte>> split(std::span<const std::byte> bytes) {
  std::vector<std::vector<std::byte>> all;
  read_packet(bytes, [&](const message_view& one) {
    std::vector<std::byte> message;
    cohort::wire::writer inner(message);
    inner.byte(static_cast<std::uint8_t>(one.kind));
    inner.varint(one.epoch);
    inner.varint(one.body.size());
    inner.raw(one.body);
    all.emplace_back();
    cohort::wire::writer out(all.back());
    out.put(one.id);
    out.varint(message.size());
    out.raw(message);
  });
  return all;
}

inline void check_tags_are_back(const endpoint& self, int ranks, int tags) {
  for (int rank = 0; rank < ranks; ++rank) {
    check(inspector::tags_are_back(self, rank, tags), "L2 tags are lost");
  }
}

}  // namespace graph_test
