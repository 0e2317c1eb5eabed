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
  bool mine = false;   // this rank has named it
  bool named = false;  // in this window (graph K3)
  bool told = false;   // to the root, in this window
};

class record_table {
 public:
  record_table() = default;
  record_table(record_table&&) noexcept = default;
  record_table& operator=(record_table&&) noexcept = default;
  ~record_table() { clear(); }

  [[nodiscard]] record& operator[](std::uint32_t at) noexcept { return records_[at]; }
  [[nodiscard]] const record& operator[](std::uint32_t at) const noexcept { return records_[at]; }
  [[nodiscard]] std::uint32_t size() const noexcept { return records_.size(); }

  [[nodiscard]] std::uint32_t find(const key& what) const {
    return by_key_.find(hash_of(what), [&](std::uint32_t at) { return records_[at].what == what; });
  }
  /// Made if it is not there.
  [[nodiscard]] std::uint32_t make(const key& what) {
    const std::uint32_t at = find(what);
    return at != none ? at : add(what);
  }
  /// The same for a task that this rank names.
  [[nodiscard]] std::uint32_t make(const task_name& task) {
    families_[task.family].named = true;  // [graph K3]
    const std::uint32_t at = find(task.what);
    return at != none && records_[at].name != none ? at : add(task, at);
  }
  /// Gives it a name if it has none.
  void name(std::uint32_t at, std::uint32_t family, std::uint32_t count,
            const std::int64_t* indices) {
    if (records_[at].name == none) records_[at].name = keep_name(family, count, indices);
  }
  [[nodiscard]] std::uint32_t keep_name(std::uint32_t family, std::uint32_t count,
                                        const std::int64_t* indices) {
    const std::uint32_t at = words_.take(1 + count);
    std::int64_t* const words = &words_[at];
    words[0] = static_cast<std::int64_t>((std::uint64_t{family} << 40U) |
                                         (std::uint64_t{count} << 32U) | now_);
    if (count != 0) words[1] = indices[0];
    for (std::uint32_t i = 1; i < count; ++i) words[1 + i] = indices[i];
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
    return static_cast<std::uint32_t>(families_.size() - 1);
  }
  [[nodiscard]] std::uint32_t family_named(const std::string& name) {
    for (std::uint32_t i = 0; i < families_.size(); ++i) {
      if (families_[i].facts.name == name) return i;
    }
    families_.push_back({});
    families_.back().facts.name = name;
    return static_cast<std::uint32_t>(families_.size() - 1);
  }
  [[nodiscard]] std::vector<family_record>& families() noexcept { return families_; }
  [[nodiscard]] const std::vector<family_record>& families() const noexcept { return families_; }

  [[nodiscard]] std::size_t capacity() const noexcept {
    return records_.capacity() + words_.capacity();
  }
  void forget_families() noexcept { families_.clear(); }
  /// All records and names, but not the families, which are good for all windows.
  void clear() {
    for (std::uint32_t at = 0; at < records_.size(); ++at) records_[at].~record();
    records_.clear();
    by_key_.clear();
    words_.clear();
  }

 private:
  friend struct inspector;
  [[nodiscard]] std::uint32_t add(const key& what) {
    const std::uint32_t at = records_.take(1);
    new (&records_[at]) record;
    records_[at].what = what;
    by_key_.insert(hash_of(what), at);
    return at;
  }
  // `at`: it is there, without a name.
  [[nodiscard, gnu::noinline]] std::uint32_t add(const task_name& task, std::uint32_t at) {
    if (at == none) at = add(task.what);
    records_[at].name = keep_name(task.family, task.count, task.indices.data());
    return at;
  }
  // Keys are hashes; those of neighbours lie side by side in the table.
  [[nodiscard]] static std::uint32_t hash_of(const key& what) noexcept {
    return static_cast<std::uint32_t>(what.low);
  }
  arena<record> records_;
  index_table by_key_;
  arena<std::int64_t> words_;  // names: family, how many indices and when; then the indices
  std::vector<family_record> families_;
  std::uint32_t now_ = 0;
};

}  // namespace cohort::graph::machine
