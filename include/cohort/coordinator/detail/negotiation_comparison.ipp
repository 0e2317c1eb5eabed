// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What is said of options that some rank refuses, or that differ between ranks.

#include <cohort/coordinator/negotiation.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// Bytes of a text that tells why a rank refuses its options.
inline constexpr std::size_t longest_refusal = 256;

/// The texts of the ranks, one after the other.
template <class Any>
void negotiation<Any>::name_refusing(const std::vector<std::uint64_t>& gathered) {
  std::map<std::string, protocol::rank_set> causes;
  protocol::rank_set all;
  const char* at = reinterpret_cast<const char*>(gathered.data());
  for (int rank = 0; rank < size_; ++rank, at += longest_refusal) {
    const char* const end = std::find(at, at + longest_refusal, '\0');
    if (at == end) continue;
    causes[std::string(at, end)].insert(rank);
    all.insert(rank);
  }
  std::string text;
  for (const auto& [cause, ranks] : causes) {
    text += (text.empty() ? "" : "; ") + protocol::detail::ranks_text(ranks);
    text += (ranks.size() == 1 ? " refused its options: " : " refused their options: ") + cause;
  }
  break_down(
      std::make_exception_ptr(mismatch_error(
          "options", all.list(), "rank " + std::to_string(rank_) + ": coordinator: " + text)),
      !refused_.empty());
}

template <class Any>
void negotiation<Any>::name_differing(const std::vector<std::uint64_t>& gathered,
                                      const std::vector<std::string>& all) {
  const std::size_t fields = all.size();
  const auto text_of = [&all](std::size_t field, std::uint64_t value) {
    const bool is_name = all[field] == "backend" || all[field] == "backend for the host";
    if (!is_name) return std::to_string(value);  // of names, letters
    std::array<char, sizeof(value) + 1> letters{};
    std::memcpy(letters.data(), &value, sizeof(value));
    return value == 0 ? std::string("none") : std::string(letters.data());
  };
  std::vector<std::string> names;
  std::map<std::vector<std::string>, protocol::rank_set> kinds;  // by the values that differ
  std::vector<std::vector<std::string>> differing(static_cast<std::size_t>(size_));
  std::string text = "coordinator options differ between ranks:";
  for (std::size_t field = 0; field < fields; ++field) {
    std::map<std::uint64_t, protocol::rank_set> groups;
    for (int rank = 0; rank < size_; ++rank) {
      groups[gathered[static_cast<std::size_t>(rank) * fields + field]].insert(rank);
    }
    if (groups.size() == 1) continue;
    names.push_back(all[field]);
    for (const auto& [value, ranks] : groups) {
      for (const int rank : ranks.list()) {
        differing[static_cast<std::size_t>(rank)].push_back(text_of(field, value));
      }
    }
    text += (names.size() == 1 ? " " : "; ") + names.back() + ":";
    for (const auto& [value, ranks] : groups) {
      text += ' ';  // apart: g++ 12 takes the one expression for an overlapping copy
      text += text_of(field, value) + " on " + protocol::detail::ranks_text(ranks) + ",";
    }
    text.pop_back();
  }
  text = "rank " + std::to_string(rank_) + ": " + text;
  for (int rank = 0; rank < size_; ++rank) {
    kinds[differing[static_cast<std::size_t>(rank)]].insert(rank);
  }
  std::vector<mismatch_error::side> sides;
  for (const auto& [values, ranks] : kinds) {
    mismatch_error::side& one = sides.emplace_back();
    one.ranks = ranks.list();
    one.values = values;
    one.site = "?";
  }
  std::sort(sides.begin(), sides.end(),
            [](const auto& a, const auto& b) { return a.ranks.front() < b.ranks.front(); });
  break_down(std::make_exception_ptr(mismatch_error(names, std::move(sides), text)));
}

}  // namespace cohort::coordination
