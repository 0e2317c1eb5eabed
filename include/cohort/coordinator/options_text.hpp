// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The options of a coordinator as text, and in files.

#include <cohort/coordinator/detail/plain_text.hpp>
#include <cohort/coordinator/options.hpp>
#include <cohort/coordinator/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort {

/// All of them, one per line: `piece=1048576`, `query_timeout=2s`, `timeline="trace.json"`, and for
/// each pack of a frozen plan `pack="layer1/w" "layer1/b"`, with the quotes of plan.hpp.
[[nodiscard]] std::string to_text(const coordinator_options& options);

/// The options of such a text, in any order, and what `describe` has printed; what is not in it
/// stays as in `others`. Lines may begin with #. Throws errc::invalid_argument that names the line:
/// an unknown option, one that is there twice, a value that is not a number in its range; and what
/// `validate` throws.
[[nodiscard]] coordinator_options parse_options(std::string_view text,
                                                coordinator_options others = {});

/// Throws std::system_error that names the file.
/// \code
/// cohort::coordinator coord(world);
/// if (world.rank() == 0) cohort::save_options("tuned.txt", coord.options());
/// co_await coord.shutdown();
/// \endcode
inline void save_options(const std::string& path, const coordinator_options& options) {
  coordination::detail::write_text(path, to_text(options));
}
/// Throws std::system_error that names the file, and what parse_options throws; 64 MiB at most.
[[nodiscard]] inline coordinator_options load_options(const std::string& path,
                                                      coordinator_options others = {}) {
  return parse_options(coordination::detail::read_text(path), std::move(others));
}

// ---- implementation --------------------------------------------------------------------------

inline std::string to_text(const coordinator_options& options) {
  std::string text;
  for (const coordination::option_row& row : coordination::option_table()) {
    text += std::string(row.name) + '=' + row.print(row.get(options)) + '\n';
  }
  if (!options.timeline.empty()) {
    text += "timeline=" + coordination::detail::quoted(options.timeline) + '\n';
  }
  for (const auto& pack : options.frozen_plan) {
    if (!pack.empty()) text += "pack=" + to_text(fusion_plan{pack});
  }
  return text;
}

inline coordinator_options parse_options(std::string_view text, coordinator_options others) {
  const std::span<const coordination::option_row> table = coordination::option_table();
  std::vector<bool> seen(table.size() + 1);
  bool packs = false;
  std::string plan;  // with as many lines as the text, so that its errors name the right one
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = coordination::detail::take_line(text);
    const auto refuse = [number](const std::string& why) {
      throw coordination::detail::bad_line("options", number, why);
    };
    const auto once = [&](std::size_t index, std::string_view name) {
      if (seen[index]) refuse(std::string(name) + " is there twice");
      seen[index] = true;
    };
    if (line.starts_with('#')) {
      line = {};
    } else if (line.starts_with("pack=")) {
      if (line.size() == 5) refuse("an empty pack");
      if (line[5] != '"') refuse("not a name in quotes");
      plan += line.substr(5);
      packs = true;
      line = {};
    } else if (line.starts_with("timeline=")) {
      once(table.size(), "timeline");
      line.remove_prefix(9);
      auto path = coordination::detail::take_quoted(line);
      if (!path || !line.empty()) refuse("timeline is not a name in quotes");
      others.timeline = std::move(*path);
    }
    plan += '\n';
    while (!line.empty()) {
      const std::string_view item = line.substr(0, line.find(' '));
      line.remove_prefix(std::min(item.size() + 1, line.size()));
      if (item.empty()) continue;
      const std::size_t equals = item.find('=');
      if (equals == std::string_view::npos) refuse("no value: '" + std::string(item) + "'");
      const std::string_view name = item.substr(0, equals);
      const auto row = std::find_if(table.begin(), table.end(),
                                    [name](const auto& each) { return each.name == name; });
      if (row == table.end()) refuse("unknown option '" + std::string(name) + "'");
      once(static_cast<std::size_t>(row - table.begin()), name);
      const auto value = row->parse(item.substr(equals + 1));
      if (!value) refuse(std::string(item) + " is not " + row->range());
      row->set(others, *value);
    }
  }
  if (packs) others.frozen_plan = parse_plan(plan);
  validate(others);
  return others;
}

}  // namespace cohort
