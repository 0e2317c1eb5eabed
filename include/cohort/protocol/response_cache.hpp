// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The ids that stand for names with signatures in messages.

#include <cohort/protocol/name_table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

}  // namespace cohort::protocol
