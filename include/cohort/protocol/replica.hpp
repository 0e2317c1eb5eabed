// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What every rank derives from the log alone, equal on all ranks at equal log positions;
/// with the ids that stand for names with signatures in messages.

#include <cohort/protocol/message.hpp>
#include <cohort/protocol/name_table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cohort::protocol {

/// Ids are dense and only added within a generation; nothing is evicted singly (protocol C1). The
/// log says when one is added, so the cache is the same on every rank.
template <class Any = void>
class basic_response_cache {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  /// The entry of an id, which must be below `size`.
  [[nodiscard]] entry_index operator[](std::uint32_t id) const noexcept { return entries_[id]; }
  [[nodiscard]] const std::vector<entry_index>& entries() const noexcept { return entries_; }

  /// Gives the next id to an entry.
  void define(name_table& names, entry_index entry) {
    names.entry(entry).id = static_cast<std::uint32_t>(entries_.size());
    names.acquire(entry);
    entries_.push_back(entry);
  }

  /// Keeps the `keep` entries used last, in the order of their ids, and numbers them from zero
  /// (protocol G1). What the client remembers of the sizes of the others is forgotten.
  void new_generation(name_table& names, std::size_t keep) {
    std::vector<std::uint64_t> uses;
    for (const entry_index entry : entries_) uses.push_back(names.entry(entry).last_use);
    std::uint64_t oldest = 0;
    if (keep < uses.size()) {
      // Log counts differ from one another, so exactly `keep` are at least this large.
      const auto last = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() - keep);
      if (keep == 0) {
        oldest = UINT64_MAX;
      } else {
        std::nth_element(uses.begin(), last, uses.end());
        oldest = *last;
      }
    }
    std::vector<entry_index> kept;
    for (const entry_index index : entries_) {
      entry_record& entry = names.entry(index);
      if (entry.last_use >= oldest) {
        entry.id = static_cast<std::uint32_t>(kept.size());
        kept.push_back(index);
      } else {
        entry.id = none;
        entry.last_use = entry.reference = entry.own_reference = 0;
        names.release(index);
      }
    }
    entries_ = std::move(kept);
  }

 private:
  std::vector<entry_index> entries_;
};
using response_cache = basic_response_cache<>;

/// What a new generation has subtracted from the epochs of a name.
struct renumbering {
  name_index name;
  epoch by;
};

/// The state that follows from the log. Names and entries are numbers of this rank; what they stand
/// for is equal everywhere.
template <class Any = void>
class basic_replica {
 public:
  using operation = std::pair<name_index, epoch>;

  explicit basic_replica(std::size_t sets) : live_(sets), gone_(sets) {}

  name_table names;
  response_cache cache;

  std::uint64_t position = 0;  ///< log items applied
  std::uint64_t generation = 0;
  std::uint64_t log_count = 0;     ///< +1 for each operation in an X and for each JOINED
  std::vector<name_index> groups;  ///< persistent groups
  rank_set departed;               ///< ranks of which an L has told
  rank_set abandoned;              ///< those of them that abandoned
  bool closed = false;

  /// Makes room for one more set, which gets the next number (protocol D1).
  void add_set() {
    live_.emplace_back();
    gone_.emplace_back();
  }
  [[nodiscard]] std::size_t sets() const noexcept { return live_.size(); }

  /// Whether an epoch has ended, by X or F (protocol E2).
  [[nodiscard]] bool resolved(name_index name, epoch number) const noexcept {
    const name_record& record = names[name];
    return number < record.base ||
           (!record.above.empty() &&
            std::binary_search(record.above.begin(), record.above.end(), number));
  }
  /// Whether it needs a rank that has left (protocol L3).
  [[nodiscard]] bool dead(name_index name, epoch number) const {
    if (names[name].listed) return false;  // the root looks after these
    const auto& live = live_[names[name].set];
    return live && !live->contains({name, number});
  }
  /// Whether a decision about it is known, or none will come.
  [[nodiscard]] bool settled(name_index name, epoch number) const {
    return closed || resolved(name, number) || dead(name, number);
  }
  /// Ends an epoch. It must not have ended before.
  void resolve(name_index name, epoch number) {
    name_record& record = names[name];
    if (resolved(name, number)) {
      throw protocol_error(fault::out_of_place, "'" + record.text + "' epoch " +
                                                    std::to_string(number) + " is resolved twice");
    }
    if (!record.counted) ++in_use_;
    record.counted = true;
    if (number == record.base) {
      ++record.base;
      std::size_t taken = 0;
      while (taken < record.above.size() && record.above[taken] == record.base) {
        ++record.base;
        ++taken;
      }
      if (taken != 0) {
        record.above.erase(record.above.begin(),
                           record.above.begin() + static_cast<std::ptrdiff_t>(taken));
      }
    } else {
      record.above.insert(std::lower_bound(record.above.begin(), record.above.end(), number),
                          number);
    }
    if (auto& live = live_[record.set]) live->erase({name, number});
  }

  /// Names with epochs resolved in this generation: what the capacity of the name table bounds
  /// (protocol P8).
  [[nodiscard]] std::size_t names_in_use() const noexcept { return in_use_; }

  /// Whether a member of the set has left.
  [[nodiscard]] bool has_leaver(std::uint32_t set) const noexcept { return live_[set].has_value(); }
  /// Whether a rank has left the negotiation.
  [[nodiscard]] bool any_leaver() const noexcept { return !departed.empty(); }
  /// The operations that can still be elected in a set with a leaver.
  [[nodiscard]] const std::set<operation>& live(std::uint32_t set) const { return *live_[set]; }
  /// Whether nothing can be elected any more in the sets that somebody has left; or in one of them.
  [[nodiscard]] bool nothing_live() const noexcept {
    return std::all_of(live_.begin(), live_.end(),
                       [](const auto& live) { return !live || live->empty(); });
  }
  [[nodiscard]] bool nothing_live(std::uint32_t set) const noexcept {
    return !live_[set] || live_[set]->empty();
  }
  /// All members of a set have left it, and all of it is decided: its names can be forgotten.
  // What is dead was never resolved; listed operations are all resolved by now.
  void end_set(std::uint32_t set) {
    gone_[set].ended = true;
    for (name_index name = 0; name < names.bound(); ++name) {
      name_record& record = names[name];
      if (!record.used || record.set != set) continue;
      record.next = record.base;
      record.above.clear();
    }
  }
  [[nodiscard]] bool has_ended(std::uint32_t set) const noexcept { return gone_[set].ended; }
  /// Notes who has left a set alone, or the negotiation where `set` is none.
  void depart(std::uint32_t set, const rank_set& ranks, departure how) {
    (set == none ? departed : gone_[set].departed).unite(ranks);
    if (how == departure::abandoned) (set == none ? abandoned : gone_[set].abandoned).unite(ranks);
  }
  /// Of some ranks those that have left the set or the negotiation; those that abandoned it.
  [[nodiscard]] rank_set departed_from(std::uint32_t set, const rank_set& members) const {
    rank_set all = departed;
    all.unite(gone_[set].departed);
    return all.common_with(members);
  }
  [[nodiscard]] rank_set abandoned_in(std::uint32_t set, const rank_set& members) const {
    rank_set all = abandoned;
    all.unite(gone_[set].abandoned);
    return all.common_with(members);
  }
  /// Leaves alive only what is in the list, too (protocol L3).
  void restrict(std::uint32_t set, const std::set<operation>& pending) {
    auto& live = live_[set];
    std::set<operation> rest;
    for (const operation& one : pending) {
      if (names[one.first].set == set && !names[one.first].listed &&
          !resolved(one.first, one.second) && (!live || live->contains(one))) {
        rest.insert(one);
      }
    }
    live = std::move(rest);
  }

  /// G: keeps the most recently used entries of the cache; numbers ids and epochs from zero again.
  /// Returns what was subtracted; the names of other tables are the caller's to renumber.
  /// (protocol G1)
  std::vector<renumbering> new_generation(std::size_t keep) {
    cache.new_generation(names, keep);
    std::vector<renumbering> result;
    in_use_ = 0;
    for (name_index name = 0; name < names.bound(); ++name) {
      name_record& record = names[name];
      record.counted = false;
      if (record.base != 0) {
        result.push_back({name, record.base});
        for (epoch& number : record.above) number -= record.base;
      }
    }
    for (auto& live : live_) {
      if (!live) continue;
      std::set<operation> moved;
      for (const auto& [name, number] : *live) moved.emplace(name, number - names[name].base);
      live = std::move(moved);
    }
    for (const renumbering& change : result) names[change.name].base = 0;
    ++generation;
    return result;
  }

  /// A number that tells different states apart, and is equal for equal ones on any rank
  /// (protocol P5).
  [[nodiscard]] std::uint64_t digest() const {
    const auto mix = [](std::uint64_t seed, std::uint64_t value) {
      seed ^= value + 0x9e3779b97f4a7c15U + (seed << 6U) + (seed >> 2U);
      return seed * 0xbf58476d1ce4e5b9U;
    };
    const auto name_hash = [&](name_index name) {
      return mix(names[name].set, std::hash<std::string>{}(names[name].text));
    };
    std::uint64_t result = mix(mix(mix(generation, log_count), closed ? 1 : 0), sets());
    for (const name_index group : groups) result = mix(result, name_hash(group));
    for (const entry_index index : cache.entries()) {
      const entry_record& entry = names.entry(index);
      result = mix(mix(result, name_hash(entry.name)), hash_of(entry.sig));
      result = mix(mix(result, entry.last_use), entry.reference);
    }
    std::uint64_t sum = 0;  // in no order
    for (name_index name = 0; name < names.bound(); ++name) {
      const name_record& record = names[name];
      if (record.base != 0) sum += mix(name_hash(name), static_cast<std::uint64_t>(record.base));
      for (const epoch number : record.above) {
        sum += mix(mix(name_hash(name), 1), static_cast<std::uint64_t>(number));
      }
    }
    for (std::size_t set = 0; set < live_.size(); ++set) {
      if (!live_[set]) continue;
      sum += mix(gone_[set].ended ? 5 : 3, set);
      for (const rank_set::range& range : gone_[set].departed.ranges()) {
        sum += mix(mix(4, set), static_cast<std::uint64_t>(range.first) << 32U |
                                    static_cast<std::uint64_t>(range.last));
      }
      for (const auto& [name, number] : *live_[set]) {
        sum += mix(mix(name_hash(name), 2), static_cast<std::uint64_t>(number));
      }
    }
    return mix(result, sum);
  }

 private:
  struct leavers {
    rank_set departed;
    rank_set abandoned;
    bool ended = false;
  };
  std::vector<std::optional<std::set<operation>>> live_;  // per set
  std::vector<leavers> gone_;                             // per set: those that left it alone
  std::size_t in_use_ = 0;
};
using replica = basic_replica<>;

}  // namespace cohort::protocol
