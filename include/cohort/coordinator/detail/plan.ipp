// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of coordinator/plan.hpp.

#include <cohort/coordinator/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <utility>

namespace cohort {

COHORT_INLINE fusion_plan sorted_plan(std::vector<named_size> tensors,
                                      const coordinator_options& options) {
  std::sort(tensors.begin(), tensors.end(),
            [](const named_size& a, const named_size& b) { return a.name < b.name; });
  fusion_plan plan;
  std::uint64_t room = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const named_size& one = tensors[i];
    if (i != 0 && one.name == tensors[i - 1].name) {
      throw error(errc::invalid_argument, "sorted_plan: '" + one.name + "' is given twice");
    }
    if (one.bytes > options.fusion_threshold || one.bytes > options.fusion_buffer) continue;
    const std::uint64_t aligned = (one.bytes + 7) / 8 * 8;
    if (plan.empty() || aligned > room) {
      plan.emplace_back();
      room = options.fusion_buffer;
    }
    plan.back().push_back(one.name);
    room -= std::min(aligned, room);
  }
  return plan;
}

COHORT_INLINE std::string to_text(const fusion_plan& plan) {
  std::string text;
  for (const auto& pack : plan) {
    for (const std::string& name : pack) {
      if (&name != &pack.front()) text += ' ';
      text += coordination::detail::quoted(name);
    }
    text += '\n';
  }
  return text;
}

COHORT_INLINE fusion_plan parse_plan(std::string_view text) {
  constexpr std::size_t longest_name = 65535;
  fusion_plan plan;
  std::unordered_set<std::string> seen;
  for (std::size_t line = 1; !text.empty(); ++line) {
    std::string_view rest = coordination::detail::take_line(text);
    const auto refuse = [line](const std::string& why) {
      throw coordination::detail::bad_line("plan", line, why);
    };
    if (rest.empty() || rest.starts_with('#')) continue;
    plan.emplace_back();
    for (bool first = true; !rest.empty(); first = false) {
      if (!first && !rest.starts_with(' ')) refuse("no blank between two names");
      rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
      if (rest.empty()) break;
      auto name = coordination::detail::take_quoted(rest);
      if (!name) refuse("not a name in quotes");
      if (name->empty()) refuse("an empty name");
      if (name->size() > longest_name) refuse("a name of more than 65535 bytes");
      if (!seen.insert(*name).second) refuse("'" + *name + "' is there twice");
      plan.back().push_back(std::move(*name));
    }
    if (plan.back().empty()) plan.pop_back();  // a line of blanks
  }
  return plan;
}

}  // namespace cohort
