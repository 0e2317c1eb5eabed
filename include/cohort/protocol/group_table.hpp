// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How often persistent groups have been started, and how this is gathered when a rank
/// leaves (protocol H4).

#include <cohort/protocol/name_table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cohort::protocol {

/// Starts of one group: the least and the most of some ranks.
struct start_range {
  name_index group = none;
  std::uint64_t least = 0;
  std::uint64_t most = 0;
};

/// A rank's own starts, and while a drain is prepared those of the sources that have told.
template <class Any = void>
class basic_group_table {
 public:
  /// The number of a start, from zero.
  std::uint64_t start(name_index group) { return starts_[group]++; }
  [[nodiscard]] std::uint64_t starts(name_index group) const {
    const auto found = starts_.find(group);
    return found == starts_.end() ? 0 : found->second;
  }
  void forget(name_index group) { starts_.erase(group); }

  /// A leave has been logged: no completion counts until the drain (protocol H3).
  bool frozen = false;
  bool drained = false;

  /// Begins to gather anew.
  void gather() { counts_.clear(); }
  /// Takes the counts of a source; true when `sources` of them have told.
  bool add(int source, std::vector<start_range> counts, std::size_t sources) {
    counts_[source] = std::move(counts);
    return counts_.size() == sources;
  }
  /// Sources that have told.
  [[nodiscard]] std::size_t gathered() const noexcept { return counts_.size(); }
  /// The least and the most over all that have told, in the order of their groups.
  [[nodiscard]] std::vector<start_range> total() const {
    std::vector<start_range> result;
    for (const auto& [source, counts] : counts_) {
      if (result.empty()) {
        result = counts;
        continue;
      }
      for (start_range& group : result) {
        for (const start_range& other : counts) {
          if (other.group != group.group) continue;
          group.least = std::min(group.least, other.least);
          group.most = std::max(group.most, other.most);
        }
      }
    }
    return result;
  }

 private:
  std::map<name_index, std::uint64_t> starts_;
  std::map<int, std::vector<start_range>> counts_;  // by source
};
using group_table = basic_group_table<>;

}  // namespace cohort::protocol
