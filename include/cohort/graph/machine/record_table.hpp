// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The records of one rank in one scope, found by their keys; and what they are called.

#include <cohort/graph/machine/index_table.hpp>
#include <cohort/graph/machine/record.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

/// A family as this rank knows it. One that only others have named has no facts but its name.
struct family_record {
  family_facts facts;
  bool mine = false;       // this rank has named it
  bool named = false;      // in this window (graph K3)
  bool told = false;       // to the root, in this window
  std::uint64_t hash = 0;  // of its name
};

class record_table {
 public:
  [[nodiscard]] record& operator[](std::uint32_t at) noexcept { return records_[at]; }
  [[nodiscard]] const record& operator[](std::uint32_t at) const noexcept { return records_[at]; }
  [[nodiscard]] std::uint32_t size() const noexcept { return records_.size(); }

  /// By the key alone, as messages do. All records are put into the table of keys when it is used,
  /// many at once, so a program on one rank hardly ever pays for it.
  [[nodiscard]] std::uint32_t find(const key& what) {
    for (; indexed_ < records_.size(); ++indexed_) {
      by_key_.insert(hash_of(records_[indexed_].what), indexed_);
    }
    return by_key_.find(hash_of(what), [&](std::uint32_t at) { return records_[at].what == what; });
  }
  /// Made if it is not there.
  [[nodiscard]] std::uint32_t make(const key& what) {
    const std::uint32_t at = find(what);
    if (at != none) return at;
    ++nameless_;
    return add(what);
  }
  /// The same for a task that this rank names.
  [[nodiscard]] std::uint32_t make(const task_name& task) {
    family_record& family = families_[task.family];
    family.named = true;  // [graph K3]
    const std::uint32_t hash = hash_of(family, task.count, task.indices.data());
    std::uint32_t at =
        by_name_.find(hash, [&](std::uint32_t one) { return records_[one].what == task.what; });
    if (at != none) return at;
    if (nameless_ != 0) at = find(task.what);
    if (at == none) {
      at = add(task.what);
    } else if (records_[at].name == none) {
      --nameless_;
    }
    records_[at].name = keep_name(task.family, task.count, task.indices.data());
    by_name_.insert(hash, at);
    return at;
  }
  /// Gives it a name if it has none.
  void name(std::uint32_t at, std::uint32_t family, std::uint32_t count,
            const std::int64_t* indices) {
    if (records_[at].name != none) return;
    --nameless_;
    records_[at].name = keep_name(family, count, indices);
    by_name_.insert(hash_of(families_[family], count, indices), at);
  }
  [[nodiscard]] std::uint32_t keep_name(std::uint32_t family, std::uint32_t count,
                                        const std::int64_t* indices) {
    const std::uint32_t at = words_.take(1 + count);
    words_[at] = static_cast<std::int64_t>((std::uint64_t{family} << 40U) |
                                           (std::uint64_t{count} << 32U) | now_);
    for (std::uint32_t i = 0; i < count; ++i) words_[at + 1 + i] = indices[i];
    return at;
  }
  [[nodiscard]] task_name name_of(std::uint32_t at) const {
    task_name one;
    if (at == none) return one;
    const auto head = static_cast<std::uint64_t>(words_[at]);
    one.family = static_cast<std::uint32_t>(head >> 40U);
    one.count = static_cast<std::uint32_t>(head >> 32U) & 0xffU;
    for (std::uint32_t i = 0; i < one.count; ++i) one.indices[i] = words_[at + 1 + i];
    return one;
  }
  [[nodiscard]] std::string text_of(std::uint32_t family, std::uint32_t count,
                                    const std::int64_t* indices) const {
    std::string text =
        family < families_.size() ? families_[family].facts.name : std::string("task");
    text += '(';
    for (std::uint32_t i = 0; i < count; ++i) {
      text.append(i == 0 ? "" : ", ").append(std::to_string(indices[i]));
    }
    return text += ')';
  }
  /// Of a name that was kept.
  [[nodiscard]] std::string kept_text(std::uint32_t name) const {
    if (name == none) return "a task that nobody here has named";
    const task_name one = name_of(name);
    return text_of(one.family, one.count, one.indices.data());
  }
  [[nodiscard]] std::string text_of(std::uint32_t at) const { return kept_text(records_[at].name); }
  /// How long ago it was first named here, in the unit of `set_time`.
  [[nodiscard]] std::uint32_t age_of(std::uint32_t at) const {
    const std::uint32_t name = records_[at].name;
    if (name == none) return 0;
    return now_ - static_cast<std::uint32_t>(static_cast<std::uint64_t>(words_[name]));
  }
  void set_time(std::uint32_t now) noexcept { now_ = now; }

  // Families are few.
  [[nodiscard]] std::uint32_t family(const family_facts& facts) {
    for (std::uint32_t i = 0; i < families_.size(); ++i) {
      if (families_[i].mine && families_[i].facts == facts) {
        families_[i].named = true;  // [graph K3]
        return i;
      }
    }
    families_.push_back({facts, true, true, false});
    families_.back().hash = hash_of(facts.name);
    return static_cast<std::uint32_t>(families_.size() - 1);
  }
  [[nodiscard]] std::uint32_t family_named(const std::string& name) {
    for (std::uint32_t i = 0; i < families_.size(); ++i) {
      if (families_[i].facts.name == name) return i;
    }
    families_.push_back({});
    families_.back().facts.name = name;
    families_.back().hash = hash_of(name);
    return static_cast<std::uint32_t>(families_.size() - 1);
  }
  [[nodiscard]] std::vector<family_record>& families() noexcept { return families_; }
  [[nodiscard]] const std::vector<family_record>& families() const noexcept { return families_; }

  /// All records and names, but not the families, which are good for all windows.
  void clear() {
    for (std::uint32_t at = 0; at < records_.size(); ++at) {
      record& one = records_[at];
      one.~record();
      new (&one) record;
    }
    records_.clear();
    by_name_.clear();
    by_key_.clear();
    indexed_ = nameless_ = 0;
    words_.clear();
  }

 private:
  friend struct inspector;
  [[nodiscard]] std::uint32_t add(const key& what) {
    const std::uint32_t at = records_.take(1);
    records_[at].what = what;
    return at;
  }
  [[nodiscard]] static std::uint64_t mix(std::uint64_t one, std::uint64_t other) noexcept {
    one = (one ^ other) * 0x9fb21c651e98df25U;
    return one ^ (one >> 32U);
  }
  [[nodiscard]] static std::uint32_t hash_of(const key& what) noexcept {
    return static_cast<std::uint32_t>(
        mix(what.low + what.high, static_cast<std::uint32_t>(what.home)));
  }
  // Eight neighbours, by the last index, lie in one line of the table: programs mostly name one
  // after the other.
  [[nodiscard]] static std::uint32_t hash_of(const family_record& family, std::uint32_t count,
                                             const std::int64_t* indices) noexcept {
    std::uint64_t hash = family.hash;
    if (count == 0) return static_cast<std::uint32_t>(hash);
    for (std::uint32_t i = 0; i + 1 < count; ++i) {
      hash = mix(hash, static_cast<std::uint64_t>(indices[i]));
    }
    const auto last = static_cast<std::uint64_t>(indices[count - 1]);
    return static_cast<std::uint32_t>(mix(hash, last / 8) * 8 + last % 8);
  }
  [[nodiscard]] static std::uint64_t hash_of(const std::string& name) noexcept {
    std::uint64_t hash = 0x87c37b91114253d5U;
    for (const char one : name) hash = mix(hash, static_cast<unsigned char>(one));
    return hash;
  }
  arena<record> records_;
  index_table by_name_;  // those with a name
  index_table by_key_;   // the first `indexed_`
  std::uint32_t indexed_ = 0;
  std::uint32_t nameless_ = 0;
  arena<std::int64_t> words_;  // names: family, how many indices and when; then the indices
  std::vector<family_record> families_;
  std::uint32_t now_ = 0;
};

}  // namespace cohort::graph::machine
