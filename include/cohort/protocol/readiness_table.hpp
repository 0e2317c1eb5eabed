// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a node knows about the operations that are not decided: who below it has announced
/// them, and who has joined.

#include <cohort/core/ranks.hpp>
#include <cohort/protocol/name_table.hpp>
#include <cohort/protocol/tree.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::protocol {

/// What a node knows about one (name, epoch). As long as all have announced the same signature,
/// which ranks have is told by masks of sources; sets of ranks are made when they are needed.
struct record {
  static constexpr std::uint64_t sizes_unset = UINT64_MAX;

  name_index name = none;
  epoch number = 0;
  entry_index entry = none;           ///< the first signature seen
  std::uint64_t done = 0;             ///< sources whose whole subtree has announced it
  std::uint64_t whole = 0;            ///< sources of which every member brings data
  std::uint64_t count = 0;            ///< ranks that bring data, of the sources in `done`
  std::uint64_t sizes = sizes_unset;  ///< common reference for "sizes as before"; 0: none
  std::uint64_t arrival = 0;          ///< order in which entries became complete; 0: not complete
  bool full = false;                  ///< every source has announced it or joined
  bool first = false;                 ///< forwarded, or to be, on first sight (protocol A2)
  bool bad = false;                   ///< a contradiction is known (protocol M1)
  bool withdrawn = false;             ///< a withdrawal is known (protocol W1)
  bool ready = false;                 ///< root: handed to the planner
  rank_set some;  ///< ranks that have announced `entry`, beyond those in `whole`
  std::vector<std::pair<entry_index, rank_set>> others;  ///< further signatures and their ranks
  record_index previous = none;  ///< of the same set, in the order of creation
  record_index next = none;
};

/// The records of a node, and the sources of which all members have joined.
template <class Any = void>
class basic_readiness_table {
 public:
  explicit basic_readiness_table(std::size_t sets) : lists_(sets), joined_(sets) {}

  [[nodiscard]] record& operator[](record_index index) noexcept { return records_[index]; }
  [[nodiscard]] const record& operator[](record_index index) const noexcept {
    return records_[index];
  }
  /// One more set.
  void add_set() {
    lists_.emplace_back();
    joined_.emplace_back();
  }
  /// The record of an operation, which is added if there is none.
  [[nodiscard]] record_index get(name_table& names, name_index name, epoch number) {
    name_record& owner = names[name];
    record_index index = owner.records.find(number);
    if (index != none) return index;
    if (free_.empty()) {
      index = static_cast<record_index>(records_.size());
      records_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    owner.records.insert(number, index);
    record& fresh = records_[index];
    fresh.name = name;
    fresh.number = number;
    list& all = lists_[owner.set];
    fresh.previous = all.last;
    (all.last == none ? all.first : records_[all.last].next) = index;
    all.last = index;
    ++size_;
    return index;
  }
  [[nodiscard]] record_index find(const name_table& names, name_index name, epoch number) const {
    return names[name].records.find(number);
  }
  /// Forgets a record.
  // Field by field, so that the memory of the sets of ranks is kept.
  void erase(name_table& names, record_index index) {
    record& one = records_[index];
    list& all = lists_[names[one.name].set];
    (one.previous == none ? all.first : records_[one.previous].next) = one.next;
    (one.next == none ? all.last : records_[one.next].previous) = one.previous;
    names[one.name].records.erase(one.number);
    if (one.entry != none) names.release(one.entry);
    for (const auto& [entry, ranks] : one.others) names.release(entry);
    one.name = one.entry = one.previous = one.next = none;
    one.done = one.whole = one.count = one.arrival = 0;
    one.sizes = record::sizes_unset;
    one.full = one.first = one.bad = one.withdrawn = one.ready = false;
    one.some.clear();
    one.others.clear();
    free_.push_back(index);
    --size_;
  }

  /// Records of a set, in the order of their creation.
  [[nodiscard]] record_index first(std::uint32_t set) const noexcept { return lists_[set].first; }
  [[nodiscard]] bool empty(std::uint32_t set) const noexcept { return lists_[set].first == none; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Ranks known to have announced the first signature.
  [[nodiscard]] rank_set ranks_of(const record& one, const set_in_tree& set) const {
    rank_set result = one.some;
    for (std::size_t source = 0; source < set.from.size(); ++source) {
      if ((one.whole >> source & 1U) != 0) result.unite(set.from[source]);
    }
    return result;
  }

  /// Sources of which all members in a set have joined (protocol J1).
  [[nodiscard]] std::uint64_t joined(std::uint32_t set) const noexcept { return joined_[set]; }
  void set_joined(std::uint32_t set, int source) noexcept {
    joined_[set] |= std::uint64_t{1} << static_cast<unsigned>(source);
  }
  void clear_joined(std::uint32_t set) noexcept { joined_[set] = 0; }

 private:
  struct list {
    record_index first = none;
    record_index last = none;
  };

  std::vector<record> records_;
  std::vector<record_index> free_;
  std::vector<list> lists_;            // per set
  std::vector<std::uint64_t> joined_;  // per set
  std::size_t size_ = 0;
};
using readiness_table = basic_readiness_table<>;

}  // namespace cohort::protocol
