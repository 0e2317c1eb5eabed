// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The processes that a process has started, as far as they can still be told.

#include <dirent.h>
#include <sys/types.h>

#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace cohort::cluster::detail {

/// A process and no later one with its number.
struct process_entry {
  pid_t pid = -1;
  pid_t parent = -1;
  unsigned long long start = 0;  ///< in ticks since the machine's start
};

/// Nothing if there is no such process, or if it is a zombie.
template <class Any = void>
[[nodiscard]] std::optional<process_entry> look_up(pid_t pid) {
  std::FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "re");
  if (file == nullptr) return std::nullopt;
  std::array<char, 1024> text{};
  const std::size_t size = std::fread(text.data(), 1, text.size(), file);
  std::fclose(file);
  // "pid (name) state parent …", the start is field 22; a name may contain anything.
  std::string_view rest(text.data(), size);
  const auto name = rest.rfind(')');
  if (name == std::string_view::npos || rest.size() < name + 4) return std::nullopt;
  rest.remove_prefix(name + 2);
  if (rest[0] == 'Z' || rest[0] == 'X') return std::nullopt;
  process_entry found{pid, -1, 0};
  for (int field = 3; field <= 22; ++field) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (field == 4) std::from_chars(word.data(), word.data() + word.size(), found.parent);
    if (field == 22) std::from_chars(word.data(), word.data() + word.size(), found.start);
    rest.remove_prefix(word.size() < rest.size() ? word.size() + 1 : rest.size());
  }
  return found;
}

/// Its children, their children, and so on; not those whose parent has ended, for they belong to
/// init then.
template <class Any = void>
[[nodiscard]] std::vector<process_entry> descendants(pid_t root) {
  std::vector<process_entry> all;
  if (DIR* folder = ::opendir("/proc")) {
    while (const dirent* one = ::readdir(folder)) {
      const std::string_view name(one->d_name);
      pid_t pid = 0;
      const auto [stop, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
      if (failed != std::errc{} || stop != name.data() + name.size()) continue;
      if (const auto entry = look_up(pid)) all.push_back(*entry);
    }
    ::closedir(folder);
  }
  std::vector<process_entry> found;
  const auto add_children = [&](pid_t parent) {
    for (const process_entry& one : all) {
      if (one.parent == parent) found.push_back(one);
    }
  };
  add_children(root);
  for (std::size_t i = 0; i < found.size(); ++i) add_children(found[i].pid);
  return found;
}

/// SIGKILL for each that still is the same process.
template <class Any = void>
void kill_all(const std::vector<process_entry>& processes) {
  for (const process_entry& one : processes) {
    const auto now = look_up(one.pid);
    if (now && now->start == one.start) ::kill(one.pid, SIGKILL);
  }
}

}  // namespace cohort::cluster::detail
