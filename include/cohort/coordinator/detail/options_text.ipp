// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of coordinator/options_text.hpp: small text files, read whole and bounded, written
/// whole, with names in quotes.

#include <cohort/coordinator/options_text.hpp>
#include <cohort/core/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cohort::coordination::detail {

inline constexpr std::size_t longest_text = std::size_t{64} << 20U;
/// Options that name files.
inline constexpr std::array file_options{
    std::pair{std::string_view("timeline"), &coordinator_options::timeline},
    std::pair{std::string_view("tune_file"), &coordinator_options::tune_file}};

/// Any bytes on one line: what is not printable is \xNN; quotes and backslashes have a backslash.
[[nodiscard]] COHORT_INLINE std::string quoted(std::string_view name) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text = "\"";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7F) {
      text += {'\\', 'x', digits[byte / 16], digits[byte % 16]};
    } else {
      text += c;
    }
  }
  return text += '"';
}

/// What `quoted` has written, from the front of `text`, which loses it; nothing for anything else.
[[nodiscard]] COHORT_INLINE std::optional<std::string> take_quoted(std::string_view& text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (!text.starts_with('"')) return std::nullopt;
  std::string name;
  for (std::size_t i = 1; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return name;
    }
    if (byte < 0x20 || byte == 0x7F) return std::nullopt;
    if (text[i] != '\\') {
      name += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    if (text[i] == '"' || text[i] == '\\') {
      name += text[i];
      continue;
    }
    if (text[i] != 'x' || i + 2 >= text.size()) return std::nullopt;
    const int high = digit(text[i + 1]);
    const int low = digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    name += static_cast<char>(16 * high + low);
    i += 2;
  }
  return std::nullopt;
}

/// Takes the first line from a text, without its end.
[[nodiscard]] COHORT_INLINE std::string_view take_line(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// For bad lines of a text that is `what`.
[[nodiscard]] COHORT_INLINE error bad_line(std::string_view what, std::size_t number,
                                           const std::string& why) {
  return error(errc::invalid_argument,
               std::string(what) + ", line " + std::to_string(number) + ": " + why);
}

struct close_file {
  void operator()(std::FILE* file) const noexcept { static_cast<void>(std::fclose(file)); }
};

/// Throws std::system_error that names the file, errc::invalid_argument for a longer one.
[[nodiscard]] COHORT_INLINE std::string read_text(const std::string& path) {
  const std::unique_ptr<std::FILE, close_file> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) throw std::system_error(errno, std::generic_category(), path);
  std::string text;
  char block[65536];
  for (;;) {
    const std::size_t n = std::fread(block, 1, sizeof(block), file.get());
    text.append(block, n);
    if (text.size() > longest_text) {
      throw error(errc::invalid_argument, path + " is longer than 64 MiB");
    }
    if (n == sizeof(block)) continue;
    if (std::ferror(file.get()) != 0) throw std::system_error(errno, std::generic_category(), path);
    return text;
  }
}

/// Throws std::system_error that names the file.
COHORT_INLINE void write_text(const std::string& path, std::string_view text) {
  std::unique_ptr<std::FILE, close_file> file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) throw std::system_error(errno, std::generic_category(), path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (std::fclose(file.release()) != 0 || !written) {
    throw std::system_error(errno, std::generic_category(), path);
  }
}

}  // namespace cohort::coordination::detail

namespace cohort {

// ---- plans -----------------------------------------------------------------------------------

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

COHORT_INLINE void save_plan(const std::string& path, const fusion_plan& plan) {
  coordination::detail::write_text(path, to_text(plan));
}
COHORT_INLINE fusion_plan load_plan(const std::string& path) {
  return parse_plan(coordination::detail::read_text(path));
}

// ---- options ---------------------------------------------------------------------------------

COHORT_INLINE std::string to_text(const coordinator_options& options) {
  std::string text;
  for (const coordination::option_row& row : coordination::option_table()) {
    text += std::string(row.name) + '=' + row.print(row.get(options)) + '\n';
  }
  for (const auto& [name, where] : coordination::detail::file_options) {
    if (const std::string& path = options.*where; !path.empty()) {
      text += std::string(name) + '=' + coordination::detail::quoted(path) + '\n';
    }
  }
  for (const auto& pack : options.frozen_plan) {
    if (!pack.empty()) text += "pack=" + to_text(fusion_plan{pack});
  }
  return text;
}

COHORT_INLINE coordinator_options parse_options(std::string_view text, coordinator_options others) {
  const std::span<const coordination::option_row> table = coordination::option_table();
  const auto& files = coordination::detail::file_options;
  std::vector<bool> seen(table.size() + files.size());
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
    } else if (const auto file = std::find_if(files.begin(), files.end(),
                                              [&](const auto& each) {
                                                return line.starts_with(each.first) &&
                                                       line.substr(each.first.size(), 1) == "=";
                                              });
               file != files.end()) {
      once(table.size() + static_cast<std::size_t>(file - files.begin()), file->first);
      line.remove_prefix(file->first.size() + 1);
      auto path = coordination::detail::take_quoted(line);
      if (!path || !line.empty()) refuse(std::string(file->first) + " is not a name in quotes");
      others.*file->second = std::move(*path);
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

COHORT_INLINE void save_options(const std::string& path, const coordinator_options& options) {
  coordination::detail::write_text(path, to_text(options));
}
COHORT_INLINE std::string coordination::tuned_text(const coordinator_options& options) {
  std::string text;
  for (const option_row& row : tuned_options()) {
    text += std::string(row.name) + '=' + row.print(row.get(options)) + '\n';
  }
  return text;
}
COHORT_INLINE void coordination::save_tuned(const std::string& path,
                                            const coordinator_options& options,
                                            std::string_view comment) {
  const std::string fresh = path + ".new";
  detail::write_text(fresh, "# " + std::string(comment) + '\n' + tuned_text(options));
  if (std::rename(fresh.c_str(), path.c_str()) != 0) {
    throw std::system_error(errno, std::generic_category(), path);
  }
}
COHORT_INLINE coordinator_options load_options(const std::string& path,
                                               coordinator_options others) {
  return parse_options(coordination::detail::read_text(path), std::move(others));
}

}  // namespace cohort
