// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Which of the operations that are ready run next, and which of them together. The root
/// alone asks; the other ranks do as the log says.

#include <cohort/core/error.hpp>
#include <cohort/core/pack_layout.hpp>
#include <cohort/protocol/queues.hpp>
#include <cohort/protocol/readiness_table.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::protocol {

/// How operations are packed. Sizes in bytes; they follow from the backend's cost model.
struct fusion_options {
  std::uint64_t fuse_below = 256 * 1024;   ///< larger operations run alone
  std::uint64_t pack_limit = 1024 * 1024;  ///< of the operations of a pack together
  std::uint64_t alignment = packs::line;   ///< of each of them in the pack; to a power of two
  std::size_t pack_most = 1024;            ///< operations of a pack
  std::size_t patience = 64;               ///< nobody is passed more often (protocol R2)
};

/// A frozen plan: each pack lists names of a set. What is in no pack runs alone.
struct frozen_pack {
  std::uint32_t set = 0;
  std::vector<std::string> names;
};

/// Orders ready operations: priority, then arrival, but nobody is passed more than `patience`
/// times (protocol R2); takes with the first what may share a pack with it (protocol R3); holds
/// packs of a frozen plan back until their members are there (protocol R4).
///
/// Adding and choosing take constant time per operation where they arrive in order of priority,
/// and logarithmic time otherwise.
template <class Any = void>
class basic_fusion_planner {
 public:
  using plan = std::shared_ptr<const std::vector<frozen_pack>>;

  /// The plan may be null. Throws error(errc::invalid_argument) where it has a name twice.
  basic_fusion_planner(const fusion_options& options, plan frozen)
      : plan_(std::move(frozen)), planned_(plan_ != nullptr) {
    set(options);
    if (!planned_) return;
    for (const frozen_pack& pack : *plan_) {
      const auto number = static_cast<std::uint32_t>(groups_.size());
      for (const std::string& name : pack.names) {
        const auto position = static_cast<std::uint32_t>(&name - pack.names.data());
        if (!places_.emplace(std::pair(pack.set, name), place{number, position}).second) {
          throw error(errc::invalid_argument, "frozen plan: '" + name + "' is in it twice");
        }
      }
      groups_.push_back({std::vector<item>(pack.names.size()), 0});
    }
  }

  /// Packs by other numbers from now on; forgets all operations, which are to be added again. Not
  /// with a plan.
  void pack_by(const fusion_options& options, name_table& names) {
    set(options);
    for (entry_index entry = 0; entry < names.entry_bound(); ++entry)
      names.entry(entry).lane = none;
    lanes_.clear();
    by_age_.clear();
    ready_ = 0;
  }

  /// An operation has become electable: complete, and the head of its name.
  void add(name_table& names, readiness_table& table, record_index index) {
    record& ready = table[index];
    ready.ready = true;
    ++ready_;
    const std::uint32_t lane = lane_of(names, ready.entry);
    const item one{index, names.entry(ready.entry).sig.priority, ready.arrival};
    if (planned_) {
      const place at = place_of(names, ready.name);
      if (at.group != none) {
        group& pack = groups_[at.group];
        pack.ready[at.position] = one;
        if (++pack.count == pack.ready.size()) complete_.push_back(at.group);
        return;
      }
    } else {
      by_age_.push({index, 0, ready.arrival});
    }
    lanes_[lane].ready.push(one);
  }
  /// It is not any more: it has failed or needs a rank that has left.
  void remove(const name_table& names, readiness_table& table, record_index index) {
    record& gone = table[index];
    gone.ready = false;
    --ready_;
    const auto still = [&table](const item& one) { return stands(table, one); };
    if (planned_) {
      const place at = place_of(names, gone.name);
      if (at.group != none) {
        group& pack = groups_[at.group];
        if (pack.ready[at.position].arrival == gone.arrival) {
          pack.ready[at.position] = item{};
          --pack.count;
          return;
        }
      }
    } else {
      by_age_.note_stale(still);
    }
    lanes_[names.entry(gone.entry).lane].ready.note_stale(still);
  }
  /// Forgets all operations, and what it knows of the numbers of names (protocol G2).
  void clear() {
    ready_ = 0;
    for (lane_state& one : lanes_) one.ready.clear();
    by_age_.clear();
    for (group& pack : groups_) {
      pack.ready.assign(pack.ready.size(), item{});
      pack.count = 0;
    }
    place_of_name_.clear();
    complete_.clear();
    released_.clear();
  }

  /// Fills `pack` with what runs next and removes that; leaves it empty if nothing is to run.
  /// `members_lost(set)`: whether members of a plan may not come any more; then what has come of a
  /// pack is released alone.
  // Who has been passed often enough is older than `patience` of the operations that were elected
  // first in their packs: those are the ones that passed it (protocol R2).
  template <class MembersLost>
  void choose(const name_table& names, readiness_table& table, MembersLost members_lost,
              std::vector<record_index>& pack) {
    const auto still = [&table](const item& one) { return stands(table, one); };
    pack.clear();
    if (ready_ == 0) return;
    if (planned_) {
      if (choose_planned(names, table, pack)) return;
      for (std::size_t i = 0; i < groups_.size(); ++i) {
        if (groups_[i].count != 0 && members_lost((*plan_)[i].set)) {
          release(names, table, groups_[i]);
        }
      }
    }
    std::uint32_t lane = none;
    const item* first = planned_ ? nullptr : by_age_.front(still);
    if (first != nullptr && passes_.size() == options_.patience &&
        first->arrival < passes_[oldest_pass_]) {
      lane = names.entry(table[first->index].entry).lane;
      take(table, *first, pack);
      lanes_[lane].ready.note_stale(still);
    } else {
      first = nullptr;
      for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
        const item* head = lanes_[i].ready.front(still);
        if (head != nullptr && (first == nullptr || head->before(*first))) {
          first = head;
          lane = i;
        }
      }
      if (first == nullptr) return;
      take(table, *first, pack);
      lanes_[lane].ready.pop();
    }
    note_pass(table[pack.front()].arrival);
    fill(names, table, lane, pack);
  }

  /// Gives the plan up if it holds anything back: the timer of protocol R4. Returns whether it did.
  bool give_up_plan(const name_table& names, readiness_table& table) {
    bool held = false;
    for (group& pack : groups_) {
      held = held || pack.count != 0;
      if (planned_) release(names, table, pack);
    }
    if (!planned_ || !held) return false;
    planned_ = false;
    complete_.clear();
    return true;
  }
  [[nodiscard]] bool has_plan() const noexcept { return planned_; }
  /// The names that a plan waits for, of packs of which some have come, for a report.
  [[nodiscard]] std::vector<std::string> awaited() const {
    std::vector<std::string> result;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i].count == 0) continue;
      for (std::size_t position = 0; position < groups_[i].ready.size(); ++position) {
        if (groups_[i].ready[position].arrival == 0) {
          result.push_back((*plan_)[i].names[position]);
        }
      }
    }
    return result;
  }

 private:
  using item = ready_queue::item;

  struct group {              // a pack of the plan
    std::vector<item> ready;  // by position; arrival 0: has not come
    std::size_t count = 0;
  };
  struct place {
    std::uint32_t group = none;
    std::uint32_t position = 0;
  };
  // Entries may share a pack where all of this is equal.
  struct lane_key {
    std::uint32_t set = 0;
    bool fuses = false;
    op_kind kind = {};
    std::uint8_t element = 0;
    std::uint32_t reduction = 0;
    memory_space space = {};
    std::uint8_t flags = 0;
    std::int32_t root = 0;
    friend bool operator==(const lane_key&, const lane_key&) = default;
  };
  struct lane_state {
    lane_key key;
    ready_queue ready;
  };

  void set(const fusion_options& options) noexcept {
    options_ = options;
    options_.alignment = std::bit_ceil(std::max<std::uint64_t>(options_.alignment, 1));
    options_.patience = std::max<std::size_t>(options_.patience, 1);
  }
  static bool stands(const readiness_table& table, const item& one) noexcept {
    return table[one.index].arrival == one.arrival && table[one.index].ready;
  }
  // A ring in ascending order. Mostly the latest arrival comes last.
  void note_pass(std::uint64_t arrival) {
    const std::size_t size = passes_.size();
    if (size < options_.patience) {
      passes_.insert(std::upper_bound(passes_.begin(), passes_.end(), arrival), arrival);
      return;
    }
    if (arrival < passes_[oldest_pass_]) return;
    std::size_t at = oldest_pass_;
    if (++oldest_pass_ == size) oldest_pass_ = 0;
    for (;;) {  // `at` is free: what is later moves up
      const std::size_t before = (at == 0 ? size : at) - 1;
      if (at == oldest_pass_ || passes_[before] <= arrival) break;
      passes_[at] = passes_[before];
      at = before;
    }
    passes_[at] = arrival;
  }
  void take(readiness_table& table, const item& one, std::vector<record_index>& pack) {
    table[one.index].ready = false;
    --ready_;
    pack.push_back(one.index);
  }
  [[nodiscard]] std::uint64_t padded(std::uint64_t bytes) const noexcept {
    return (bytes + options_.alignment - 1) & ~(options_.alignment - 1);
  }
  // [protocol R3] Large operations, and kinds that no backend packs, run alone: they share one lane
  // per set.
  [[nodiscard]] std::uint32_t lane_of(name_table& names, entry_index index) {
    entry_record& entry = names.entry(index);
    if (entry.lane != none) return entry.lane;
    const signature& sig = entry.sig;
    const bool fuses = is_fusible(sig.kind) && !sig.has(signature_flag::alone) &&
                       entry.bytes <= options_.fuse_below;
    lane_key key;
    key.set = names[entry.name].set;
    key.fuses = fuses;
    if (fuses) {
      // What is compressed travels with others of the type that it is compressed to.
      const auto flags = static_cast<std::uint8_t>(sig.flags & ~signature_flag::half_on_wire);
      key = {key.set, fuses, sig.kind, sig.element, sig.reduction, sig.space, flags, sig.root};
    }
    const auto known = std::find_if(lanes_.begin(), lanes_.end(),
                                    [&key](const lane_state& one) { return one.key == key; });
    entry.lane = static_cast<std::uint32_t>(known - lanes_.begin());
    if (known == lanes_.end()) lanes_.push_back({key, {}});
    return entry.lane;
  }
  [[nodiscard]] place place_of(const name_table& names, name_index name) {
    if (name >= place_of_name_.size()) place_of_name_.resize(names.bound());
    std::optional<place>& known = place_of_name_[name];
    if (!known) {
      const auto found = places_.find({names[name].set, names[name].text});
      known = found == places_.end() ? place{} : found->second;
    }
    return *known;
  }
  // The members of a complete pack of the plan, cut where they cannot share a pack: a function of
  // the plan and the signatures alone.
  void split(const name_table& names, const readiness_table& table, group& complete) {
    std::uint64_t total = 0;
    std::uint32_t lane = none;
    for (item& one : complete.ready) {
      const entry_record& entry = names.entry(table[one.index].entry);
      total += padded(entry.bytes);
      if (entry.lane != lane || !lanes_[lane].key.fuses || total > options_.pack_limit ||
          released_.back().size() == options_.pack_most) {
        released_.emplace_back();
        lane = entry.lane;
        total = padded(entry.bytes);
      }
      released_.back().push_back(one);
      one = item{};
    }
    complete.count = 0;
  }
  void release(const name_table& names, const readiness_table& table, group& some) {
    for (item& one : some.ready) {
      if (one.arrival != 0) lanes_[names.entry(table[one.index].entry).lane].ready.push(one);
      one = item{};
    }
    some.count = 0;
  }
  void fill(const name_table& names, readiness_table& table, std::uint32_t lane,
            std::vector<record_index>& pack) {
    if (!lanes_[lane].key.fuses || planned_) return;
    std::uint64_t total = padded(names.entry(table[pack.front()].entry).bytes);
    while (pack.size() < options_.pack_most) {
      const item* next =
          lanes_[lane].ready.front([&table](const item& one) { return stands(table, one); });
      if (next == nullptr) return;
      total += padded(names.entry(table[next->index].entry).bytes);
      if (total > options_.pack_limit) return;
      take(table, *next, pack);
      lanes_[lane].ready.pop();
    }
  }
  bool choose_planned(const name_table& names, readiness_table& table,
                      std::vector<record_index>& pack) {
    while (!released_.empty() || !complete_.empty()) {
      if (released_.empty()) {
        group& next = groups_[complete_.front()];
        complete_.pop_front();
        if (next.count != next.ready.size()) continue;  // a member has failed since
        split(names, table, next);
      }
      for (const item& one : released_.front()) {
        if (stands(table, one)) take(table, one, pack);
      }
      released_.pop_front();
      if (!pack.empty()) return true;
    }
    return false;
  }

  fusion_options options_;
  std::size_t ready_ = 0;  // operations
  std::vector<lane_state> lanes_;
  ready_queue by_age_;
  std::vector<std::uint64_t> passes_;  // the latest arrivals elected first, from oldest_pass_ on
  std::size_t oldest_pass_ = 0;

  plan plan_;
  bool planned_;
  std::vector<group> groups_;
  std::map<std::pair<std::uint32_t, std::string>, place> places_;
  std::vector<std::optional<place>> place_of_name_;
  std::deque<std::uint32_t> complete_;      // groups
  std::deque<std::vector<item>> released_;  // parts of complete groups that may share a pack
};
using fusion_planner = basic_fusion_planner<>;

}  // namespace cohort::protocol
