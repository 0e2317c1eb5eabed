// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the checker of the protocol is made of: random numbers, violations, and operations as
/// an oracle sees them that knows everything.

#include "support/checking.hpp"

#include <cohort/protocol.hpp>

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cohort::protocol {

/// Looks into a node.
struct inspector {
  static const readiness_table& records(const node& self) { return self.table_; }
  static const std::map<node::key, verdict_ptr>& poison(const node& self) { return self.poison_; }
  static bool left(const node& self) { return self.leaving_.has_value(); }
  static bool joined(const node& self, std::uint32_t set) { return self.joins_[set].active; }
  static bool left_set(const node& self, std::uint32_t set) {
    return self.left_sets_[set].has_value();
  }
  static bool has_plan(const node& self) { return self.planner_.has_plan(); }
  static bool queries(const node& self) { return self.query_.running(); }
  /// A number that tells states apart; of arrivals only their order matters.
  static std::uint64_t digest(const node& self);
};

}  // namespace cohort::protocol

namespace protocol_test {

using namespace cohort::protocol;
using cohort::rank_set;

using checking::check;
using checking::rng;
using checking::violation;

/// A name of a set.
struct full_name {
  std::uint32_t first = 0;
  std::string second;
  friend auto operator<=>(const full_name&, const full_name&) = default;
};
inline std::ostream& operator<<(std::ostream& out, const full_name& name) {
  return out << name.second << " of set " << name.first;
}

enum class ending { none, ok, refused, mismatch, withdrawn, joined, peer_lost, data };

inline std::ostream& operator<<(std::ostream& out, ending value) {
  static constexpr const char* names[] = {"none",      "ok",     "refused",   "mismatch",
                                          "withdrawn", "joined", "peer_lost", "data"};
  return out << names[static_cast<int>(value)];
}

inline ending ending_of(const verdict& why) {
  switch (why.kind) {
    case failure_kind::mismatch:
      return ending::mismatch;
    case failure_kind::withdrawn:
      return ending::withdrawn;
    case failure_kind::joined:
      return ending::joined;
    case failure_kind::peer_lost:
      return ending::peer_lost;
    case failure_kind::data:
      return ending::data;
  }
  return ending::none;
}

/// One submission, join or start and its awaiter. `number` is the epoch, never renumbered.
struct oracle_operation {
  int rank = 0;
  full_name name;
  signature sig;
  std::int64_t size = 1;
  epoch number = 0;
  ending result = ending::none;
  int newest = -1;                    // of a join: the rank with the newest state
  std::optional<std::uint32_t> made;  // the set that it has made
  bool withdrawn = false;
  bool elected = false;  // and known to be on its rank
  bool is_submission = false;
  operation_ref operation;

  void finish(ending how) {
    check(result == ending::none, "P3 awaiter of ", name, " on rank ", rank,
          " resumes twice: ", result, ", ", how);
    result = how;
  }
};

class hasher {
 public:
  hasher& operator()(std::uint64_t value) {
    state_ = (state_ ^ value) * 0x9e3779b97f4a7c15U;
    state_ ^= state_ >> 29U;
    return *this;
  }
  hasher& operator()(const std::string& text) { return (*this)(std::hash<std::string>{}(text)); }
  hasher& operator()(const rank_set& ranks) {
    for (const rank_set::range& range : ranks.ranges()) {
      (*this)(static_cast<std::uint64_t>(range.first))(static_cast<std::uint64_t>(range.last));
    }
    return (*this)(0xf00dU);
  }
  hasher& operator()(const full_name& name) { return (*this)(name.first)(name.second); }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x243f6a8885a308d3U;
};

}  // namespace protocol_test

namespace cohort::protocol {

inline std::uint64_t inspector::digest(const node& self) {
  protocol_test::hasher hash;
  const auto signed_value = [](epoch value) { return static_cast<std::uint64_t>(value); };
  hash(self.log_.digest())(self.log_.position)(self.log_.departed)(self.log_.abandoned);
  std::map<protocol_test::full_name, name_index> names;
  for (name_index i = 0; i < self.log_.names.bound(); ++i) {
    const name_record& name = self.log_.names[i];
    if (name.used) names.emplace(protocol_test::full_name{name.set, name.text}, i);
  }
  for (const auto& [text, i] : names) {
    const name_record& name = self.log_.names[i];
    if (name.next == 0 && name.base == 0 && name.above.empty() && name.sent == -1 &&
        name.seen.empty() && name.operations.empty()) {
      continue;
    }
    hash(text)(signed_value(name.next))(signed_value(name.sent));
    for (const epoch seen : name.seen) hash(signed_value(seen));
    name.operations.for_each([&](epoch number, std::uint32_t slot) {
      const node::operation& one = self.operations_[slot];
      hash(signed_value(number))(one.withdrawn ? 2 + static_cast<int>(one.reason) : 0);
    });
    for (const entry_index entry : name.entries) {
      const entry_record& known = self.log_.names.entry(entry);
      if (known.own_reference == 0 || known.own_reference != known.reference) continue;
      hash(hash_of(known.sig));
      for (const std::int64_t size : known.own_sizes) hash(signed_value(size));
    }
  }
  const auto name_of = [&](name_index name) {
    return protocol_test::full_name{self.log_.names[name].set, self.log_.names[name].text};
  };
  for (const auto& [which, why] : self.poison_) {
    hash(name_of(which.first))(signed_value(which.second))(static_cast<std::uint64_t>(why->kind));
  }
  std::map<std::uint64_t, std::uint64_t> arrivals;
  for (std::uint32_t set = 0; set < self.sets_.size(); ++set) {
    hash(self.table_.joined(set))(self.joins_[set].active ? 1 : 0)(self.joins_[set].failed ? 1 : 0);
    hash(self.joins_[set].took);
    hash(self.left_sets_[set] ? 1 + static_cast<std::uint64_t>(self.left_sets_[set]->how) : 0);
    if (self.left_sets_[set]) hash(self.left_sets_[set]->why);
    for (auto i = self.table_.first(set); i != none; i = self.table_[i].next) {
      const record& one = self.table_[i];
      hash(name_of(one.name))(signed_value(one.number))(one.done)(one.whole)(one.count)(one.sizes);
      hash((one.full ? 1U : 0U) | (one.first ? 2U : 0U) | (one.bad ? 4U : 0U) |
           (one.withdrawn ? 8U : 0U) | (one.ready ? 16U : 0U));
      for (const side& known : self.sides_of(one)) hash(hash_of(known.sig))(known.ranks);
      if (self.tree_.is_root() && one.full) {
        arrivals[one.arrival] =
            protocol_test::hasher()(name_of(one.name))(signed_value(one.number)).value();
      }
    }
  }
  for (const auto& [arrival, one] : arrivals) hash(one);
  for (const ready_queue::item& one : self.doomed_) {
    const record& doomed = self.table_[one.index];
    if (doomed.arrival == one.arrival) hash(name_of(doomed.name))(signed_value(doomed.number));
  }
  if (self.leaving_) hash(self.leaving_->why);
  for (const auto& one : self.reasons_) hash(one.set)(signed_value(one.rank))(one.why);
  hash(self.leaving_ ? 1 + static_cast<std::uint64_t>(self.leaving_->how) : 0)(self.report_wanted_)(
      self.ended_)(self.report_for_)(self.asked_up_)(self.query_.running())(self.query_.awaited());
  if (self.query_.running()) {
    hash(self.query_.number());
    for (const auto& [which, sides] : self.query_.table) {
      hash(name_of(which.first))(signed_value(which.second));
      for (const side& known : sides) hash(hash_of(known.sig))(known.ranks);
    }
  }
  for (const name_index group : self.log_.groups) hash(self.groups_.starts(group));
  hash(self.groups_.frozen)(self.groups_.drained)(self.groups_.gathered());
  hash(self.left_)(self.in_flight_)(self.cache_full_);
  for (const auto& [set, ranks] : self.leavers_) hash(set)(ranks);
  for (int child = 0; child < self.tree_.child_count(); ++child) {
    if (self.down_.empty(child)) continue;
    downstream unsent = self.down_;
    std::vector<std::byte> bytes;
    unsent.take(child, bytes);
    hash(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));  // NOLINT
  }
  for (const auto& [which, rank] : self.overdue_) {
    hash(name_of(which.first))(signed_value(which.second))(static_cast<std::uint64_t>(rank));
  }
  return hash.value();
}

}  // namespace cohort::protocol
