// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Reads rows of numbers from a CSV file; whatever does not fit is an error with its place.

#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace support {

/// Reads rows of exactly `ranges.size()` numbers, each between the low and high end for its column,
/// without header, quotes or blanks. Throws a `std::runtime_error` that names file, line and column
/// for anything else, and for lines above 64 KiB and files above a million rows.
template <class T>
std::vector<std::vector<T>> read_csv(const std::string& file,
                                     const std::vector<std::array<T, 2>>& ranges) {
  std::vector<std::vector<T>> rows;
  std::size_t line = 1;
  const auto fail = [&](const std::string& what, std::size_t column = 0) {
    const auto place = column == 0 ? "" : ", column " + std::to_string(column);
    throw std::runtime_error(file + ", line " + std::to_string(line) + place + ": " + what);
  };
  const auto parse = [&](std::string_view field, std::size_t column) {
    const auto [low, high] = ranges[column - 1];
    T value{};
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    const bool whole = error == std::errc{} && end == field.data() + field.size();
    if (whole && value >= low && value <= high) return value;
    std::string shown{field.substr(0, 20)};
    for (char& c : shown) c = c >= ' ' && c <= '~' ? c : '?';
    const auto range = std::to_string(low) + " to " + std::to_string(high);
    fail("'" + shown + "' is not a number from " + range, column);
    return value;
  };

  std::ifstream in{file, std::ios::binary};
  std::array<char, 65536> buffer;
  for (; in.getline(buffer.data(), buffer.size()); ++line) {
    if (line > 1'000'000) fail("more than a million rows");
    const auto read = static_cast<std::size_t>(in.gcount());  // counts the line's end, if there
    std::string_view rest{buffer.data(), in.eof() ? read : read - 1};
    if (rest.ends_with('\r')) rest.remove_suffix(1);
    auto& row = rows.emplace_back();
    for (std::size_t comma = 0; comma != std::string_view::npos;) {
      if (row.size() == ranges.size()) fail("one column too many", row.size() + 1);
      comma = rest.find(',');
      row.push_back(parse(rest.substr(0, comma), row.size() + 1));
      if (comma != std::string_view::npos) rest.remove_prefix(comma + 1);
    }
    if (row.size() < ranges.size()) fail("the row ends too early", row.size() + 1);
  }
  const bool unreadable = !in.is_open() || in.bad();
  if (unreadable) throw std::runtime_error(file + ": " + std::generic_category().message(errno));
  if (!in.eof()) fail("longer than 64 KiB");
  return rows;
}

}  // namespace support
