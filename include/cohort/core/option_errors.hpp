// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Options that some rank refuses, or that differ between ranks.

#include <cohort/core/error.hpp>
#include <cohort/core/ranks.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cohort {

/// Seen by the rank `self` of `owner`, "coordinator" for example: which ranks refuse their options,
/// and why.
[[nodiscard]] inline mismatch_error refused_options(int self, const std::string& owner,
                                                    const std::map<std::string, rank_set>& causes) {
  rank_set all;
  std::string text;
  for (const auto& [cause, ranks] : causes) {
    all.unite(ranks);
    text += (text.empty() ? "" : "; ") + ranks_text(ranks);
    text += (ranks.size() == 1 ? " refused its options: " : " refused their options: ") + cause;
  }
  return {"options", all.list(), "rank " + std::to_string(self) + ": " + owner + ": " + text};
}

/// The same, of options that differ: `values` has one for each of `names`, of one rank after the
/// other.
[[nodiscard]] inline mismatch_error differing_options(
    int self, const std::string& owner, const std::vector<std::string>& names,
    const std::vector<std::uint64_t>& values,
    std::string (*text_of)(const std::string& name, std::uint64_t value)) {
  std::vector<std::string> fields;
  std::vector<std::vector<std::string>> of_rank(values.size() / names.size());  // that differ
  std::string text =
      "rank " + std::to_string(self) + ": " + owner + " options differ between ranks:";
  for (std::size_t field = 0; field < names.size(); ++field) {
    std::map<std::uint64_t, rank_set> groups;
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      groups[values[rank * names.size() + field]].insert(static_cast<int>(rank));
    }
    if (groups.size() == 1) continue;
    text += (fields.empty() ? " " : "; ") + names[field] + ":";
    fields.push_back(names[field]);
    for (const auto& [value, ranks] : groups) {
      const std::string one = text_of(names[field], value);
      text += ' ';  // apart: g++ 12 takes the one expression for an overlapping copy
      text += one + " on " + ranks_text(ranks) + ",";
      for (const int rank : ranks.list()) of_rank[static_cast<std::size_t>(rank)].push_back(one);
    }
    text.pop_back();
  }
  std::map<std::vector<std::string>, rank_set> kinds;
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    kinds[of_rank[rank]].insert(static_cast<int>(rank));
  }
  std::vector<mismatch_error::side> sides;
  for (const auto& [all, ranks] : kinds) sides.push_back({ranks.list(), all, "?"});
  std::sort(sides.begin(), sides.end(),
            [](const auto& a, const auto& b) { return a.ranks.front() < b.ranks.front(); });
  return {std::move(fields), std::move(sides), text};
}

}  // namespace cohort
