// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The names and signatures that a rank knows, each stored once and referred to by a number,
/// with a small map from the epochs of one name to indexes.

#include <cohort/protocol/signature.hpp>
#include <cohort/protocol/tree.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::protocol {

/// Epochs to indexes. Mostly there is one, which lies here. Several lie close together, oldest
/// first, so they are slots of a vector whose memory is kept; one that is far from the rest, which
/// only a strange peer brings, goes to an ordinary map, so that no epoch costs more than its entry.
template <class Any = void>
class basic_epoch_map {
 public:
  [[nodiscard]] bool empty() const noexcept { return used_ == 0 && far_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return used_ + far_.size(); }

  /// The index at an epoch, or `none`.
  [[nodiscard]] std::uint32_t find(epoch number) const noexcept {
    if (slots_.empty()) {
      if (number == first_ && used_ != 0) return only_;
    } else {
      const auto offset = static_cast<std::uint64_t>(number - first_);
      if (offset < slots_.size() - head_ && slots_[head_ + offset] != none) {
        return slots_[head_ + offset];
      }
    }
    if (far_.empty()) return none;
    const auto found = far_.find(number);
    return found == far_.end() ? none : found->second;
  }

  /// The epoch must be free.
  void insert(epoch number, std::uint32_t index) {
    if (used_ != 0) return insert_more(number, index);
    first_ = number;
    only_ = index;
    used_ = 1;
  }
  /// Removes an epoch and returns what it held, or `none`.
  std::uint32_t erase(epoch number) {
    if (!slots_.empty() || used_ == 0 || number != first_) return erase_of_more(number);
    used_ = 0;
    return only_;
  }
  /// Subtracts from all epochs.
  void renumber(epoch by) {
    first_ -= by;
    if (far_.empty() || by == 0) return;
    std::map<epoch, std::uint32_t> moved;
    for (const auto& [number, index] : far_) moved.emplace(number - by, index);
    far_ = std::move(moved);
  }
  void clear() noexcept {
    slots_.clear();
    head_ = 0;
    used_ = 0;
    far_.clear();
  }

  /// Calls `visit(epoch, index)` in ascending order.
  template <class Visit>
  void for_each(Visit visit) const {
    auto far = far_.begin();
    const auto near = [&](epoch number, std::uint32_t index) {
      for (; far != far_.end() && far->first < number; ++far) visit(far->first, far->second);
      if (index != none) visit(number, index);
    };
    if (slots_.empty() && used_ != 0) near(first_, only_);
    for (std::size_t i = head_; i < slots_.size(); ++i) {
      near(first_ + static_cast<epoch>(i - head_), slots_[i]);
    }
    for (; far != far_.end(); ++far) visit(far->first, far->second);
  }

 private:
  static constexpr std::uint64_t slack = 1024;

  void insert_more(epoch number, std::uint32_t index) {
    if (slots_.empty()) slots_.push_back(only_);
    if (number < first_ && static_cast<std::uint64_t>(first_ - number) <= head_) {
      while (first_ > number) {
        slots_[--head_] = none;
        --first_;
      }
    }
    const auto offset = static_cast<std::uint64_t>(number - first_);
    if (number < first_ || offset > slots_.size() - head_ + slack) {
      far_.emplace(number, index);
      return;
    }
    while (slots_.size() - head_ <= offset) slots_.push_back(none);
    slots_[head_ + offset] = index;
    ++used_;
  }
  std::uint32_t erase_of_more(epoch number) {
    const auto offset = static_cast<std::uint64_t>(number - first_);
    if (offset >= slots_.size() - head_ || slots_[head_ + offset] == none) {
      if (far_.empty()) return none;
      const auto found = far_.find(number);
      if (found == far_.end()) return none;
      const std::uint32_t index = found->second;
      far_.erase(found);
      return index;
    }
    const std::uint32_t index = slots_[head_ + offset];
    slots_[head_ + offset] = none;
    if (--used_ == 0) {
      slots_.clear();
      head_ = 0;
      return index;
    }
    while (slots_[head_] == none) {
      ++head_;
      ++first_;
    }
    if (head_ > 64 && head_ > slots_.size() / 2) {  // amortised: as many have gone as are moved
      slots_.erase(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    return index;
  }

  epoch first_ = 0;
  std::uint32_t only_ = none;         // of first_, where there are no slots
  std::size_t used_ = 0;              // not counting those that are far
  std::vector<std::uint32_t> slots_;  // from head_ on, for first_, first_ + 1, ...
  std::size_t head_ = 0;
  std::map<epoch, std::uint32_t> far_;
};
using epoch_map = basic_epoch_map<>;

/// A name of a process set, with what is counted per name.
struct name_record {
  epoch next = 0;                  ///< client: of the next submission
  epoch base = 0;                  ///< log: the first unresolved epoch
  epoch sent = -1;                 ///< edge up: last epoch announced completely
  std::uint64_t announced_in = 0;  ///< edge up: the last message with a complete announcement
  std::uint32_t set = 0;
  std::uint32_t held_by = 0;  ///< poison, groups: reasons of others to keep the name
  entry_index recent = none;
  name_index follower = none;  ///< that was interned after it the last time
  bool used = false;
  bool counted = false;  ///< log: an epoch has been resolved in this generation
  std::shared_ptr<const set_in_tree> listed;  ///< its members, where they are not all of the set
  std::string text;
  epoch_map operations;  ///< client: pending
  epoch_map records;
  std::vector<epoch> above;  ///< log: resolved epochs above `base`, ascending
  std::vector<epoch> seen;   ///< edge of each child: as `sent`; empty: nothing seen
  std::vector<entry_index> entries;
};

/// A name with a signature: what is compared, counted and cached.
struct entry_record {
  name_index name = none;
  signature sig;
  call_site site;                   ///< of a rank that announced it in full, if known
  std::uint32_t uses = 0;           ///< who refers to it: cache, records, operations, actions
  std::uint32_t id = none;          ///< in the cache
  std::uint64_t last_use = 0;       ///< cache: log count
  std::uint64_t reference = 0;      ///< cache: log count of the exchange of sizes that holds
  std::uint32_t lane = none;        ///< fusion: which entries it may share a pack with
  std::uint64_t bytes = 0;          ///< fusion
  std::uint64_t own_reference = 0;  ///< client: the exchange at which its sizes were `own_sizes`
  std::vector<std::int64_t> own_sizes;
};

/// Names and entries by number. A number is given again after its owner has gone.
template <class Any = void>
class basic_name_table {
 public:
  /// The number of a name, which is added if it is new. Programs repeat themselves, so the name
  /// that followed the last one before is tried first: one comparison, no hash.
  [[nodiscard]] name_index intern(std::uint32_t set, std::string_view text) {
    const name_index guess = last_ < names_.size() ? names_[last_].follower : none;
    if (guess < names_.size() && names_[guess].used && names_[guess].set == set &&
        names_[guess].text == text) {
      return last_ = guess;
    }
    const name_index name = look_up(set, text);
    if (last_ < names_.size()) names_[last_].follower = name;
    return last_ = name;
  }
  /// The number of a name's signature, which is added if it is new. It lives until `release` has
  /// been called once for each `acquire`.
  [[nodiscard]] entry_index intern(name_index name, const signature& sig) {
    name_record& owner = names_[name];
    if (owner.recent != none && entries_[owner.recent].sig == sig) return owner.recent;
    const std::size_t hash = hash_of(sig) ^ (name * std::size_t{0x9e3779b97f4a7c15U});
    const auto [begin, end] = by_hash_.equal_range(hash);
    for (auto at = begin; at != end; ++at) {
      const entry_record& known = entries_[at->second];
      if (known.name == name && known.sig == sig) return owner.recent = at->second;
    }
    entry_index index = static_cast<entry_index>(entries_.size());
    if (free_entries_.empty()) {
      entries_.emplace_back();
    } else {
      index = free_entries_.back();
      free_entries_.pop_back();
    }
    entry_record& fresh = entries_[index];
    fresh.name = name;
    fresh.sig = sig;
    fresh.bytes = sig.bytes();
    by_hash_.emplace(hash, index);
    owner.entries.push_back(index);
    return owner.recent = index;
  }

  /// The number of a name that is known, or `none`.
  [[nodiscard]] name_index find(std::uint32_t set, std::string_view text) const {
    if (set >= by_text_.size()) return none;
    const auto found = by_text_[set].find(text);
    return found == by_text_[set].end() ? none : found->second;
  }

  [[nodiscard]] name_record& operator[](name_index name) noexcept { return names_[name]; }
  [[nodiscard]] const name_record& operator[](name_index name) const noexcept {
    return names_[name];
  }
  [[nodiscard]] entry_record& entry(entry_index entry) noexcept { return entries_[entry]; }
  [[nodiscard]] const entry_record& entry(entry_index entry) const noexcept {
    return entries_[entry];
  }

  void acquire(entry_index entry) noexcept { ++entries_[entry].uses; }
  void release(entry_index entry) noexcept {
    if (--entries_[entry].uses == 0) drop(entry);
  }

  /// Forgets the names that nothing refers to any more. What a rank is behind with is covered by
  /// its poison, or will be by protocol J5.
  void purge() {
    for (name_index name = 0; name < names_.size(); ++name) {
      name_record& record = names_[name];
      if (!record.used || record.next > 0 || record.base != 0 || !record.above.empty() ||
          !record.records.empty() || !record.operations.empty() || !record.entries.empty() ||
          record.held_by != 0) {
        continue;
      }
      by_text_[record.set].erase(record.text);
      record = name_record{};
      free_names_.push_back(name);
    }
  }

  /// One more than the largest number of a name; `used` says which of them exist.
  [[nodiscard]] std::size_t bound() const noexcept { return names_.size(); }
  /// The same of entries.
  [[nodiscard]] std::size_t entry_bound() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t name_count() const noexcept {
    return names_.size() - free_names_.size();
  }
  [[nodiscard]] std::size_t entry_count() const noexcept {
    return entries_.size() - free_entries_.size();
  }

 private:
  struct text_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>{}(text);
    }
  };
  using text_map = std::unordered_map<std::string, name_index, text_hash, std::equal_to<>>;

  name_index look_up(std::uint32_t set, std::string_view text) {
    if (set >= by_text_.size()) by_text_.resize(set + 1);
    const auto found = by_text_[set].find(text);
    if (found != by_text_[set].end()) return found->second;
    name_index name = static_cast<name_index>(names_.size());
    if (free_names_.empty()) {
      names_.emplace_back();
    } else {
      name = free_names_.back();
      free_names_.pop_back();
    }
    name_record& record = names_[name];
    record.set = set;
    record.text = text;
    record.used = true;
    by_text_[set].emplace(record.text, name);
    return name;
  }
  void drop(entry_index entry);

  name_index last_ = none;         // interned
  std::vector<text_map> by_text_;  // per set
  std::vector<name_record> names_;
  std::vector<name_index> free_names_;
  std::vector<entry_record> entries_;
  std::vector<entry_index> free_entries_;
  std::unordered_multimap<std::size_t, entry_index> by_hash_;  // of name and signature
};
using name_table = basic_name_table<>;

template <class Any>
void basic_name_table<Any>::drop(entry_index index) {
  entry_record& entry = entries_[index];
  name_record& owner = names_[entry.name];
  const std::size_t hash = hash_of(entry.sig) ^ (entry.name * std::size_t{0x9e3779b97f4a7c15U});
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    if (at->second == index) {
      by_hash_.erase(at);
      break;
    }
  }
  std::erase(owner.entries, index);
  if (owner.recent == index) owner.recent = none;
  entry = entry_record{};
  free_entries_.push_back(index);
}

}  // namespace cohort::protocol
