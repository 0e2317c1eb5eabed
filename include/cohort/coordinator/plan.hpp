// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Frozen plans: made from names and sizes, kept in files.

#include <cohort/coordinator/bundle.hpp>
#include <cohort/coordinator/detail/plain_text.hpp>
#include <cohort/coordinator/options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cohort {

/// Packs of these tensors, sorted by name, each as full as `fusion_buffer` allows. Tensors above
/// `fusion_threshold` are in no pack: they travel alone. The plan depends on names, sizes and these
/// two options only, so it is the same in every run and on every rank.
/// Throws errc::invalid_argument for a name that is given twice.
/// \code
/// std::vector<float> w(1000), b(10);
/// cohort::coordinator_options options;
/// options.frozen_plan = cohort::sorted_plan({{"w", sizeof(float) * w.size()}, {"b", 40}});
/// cohort::coordinator coord(world, options);
/// \endcode
[[nodiscard]] fusion_plan sorted_plan(std::vector<named_size> tensors,
                                      const coordinator_options& options = {});
/// Of the members of a bundle; the plan is for operations with their names.
[[nodiscard]] inline fusion_plan sorted_plan(const bundle& tensors,
                                             const coordinator_options& options = {}) {
  return sorted_plan(tensors.sizes(), options);
}

/// A pack per line, each name in quotes, as in `"layer1/w" "layer1/b"`. In the quotes \", \\ and
/// \x0a stand for a quote, a backslash and the byte of that number. Lines may begin with #.
[[nodiscard]] std::string to_text(const fusion_plan& plan);
/// Throws errc::invalid_argument that names the line and what is wrong with it: not such a text, an
/// empty or too long name, a name that is there twice.
[[nodiscard]] fusion_plan parse_plan(std::string_view text);

/// Throws std::system_error that names the file.
inline void save_plan(const std::string& path, const fusion_plan& plan) {
  coordination::detail::write_text(path, to_text(plan));
}
/// Throws std::system_error that names the file, and what parse_plan throws; 64 MiB at most.
[[nodiscard]] inline fusion_plan load_plan(const std::string& path) {
  return parse_plan(coordination::detail::read_text(path));
}

// ---- implementation --------------------------------------------------------------------------

inline fusion_plan sorted_plan(std::vector<named_size> tensors,
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

inline std::string to_text(const fusion_plan& plan) {
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

inline fusion_plan parse_plan(std::string_view text) {
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
