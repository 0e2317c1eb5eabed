// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Small text files: read whole and bounded, written whole, with names in quotes.

#include <cohort/core/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace cohort::coordination::detail {

inline constexpr std::size_t longest_text = std::size_t{64} << 20U;

/// Any bytes on one line: what is not printable is \xNN; quotes and backslashes have a backslash.
[[nodiscard]] inline std::string quoted(std::string_view name) {
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
[[nodiscard]] inline std::optional<std::string> take_quoted(std::string_view& text) {
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
[[nodiscard]] inline std::string_view take_line(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// For bad lines of a text that is `what`.
[[nodiscard]] inline error bad_line(std::string_view what, std::size_t number,
                                    const std::string& why) {
  return error(errc::invalid_argument,
               std::string(what) + ", line " + std::to_string(number) + ": " + why);
}

struct close_file {
  void operator()(std::FILE* file) const noexcept { static_cast<void>(std::fclose(file)); }
};

/// Throws std::system_error that names the file, errc::invalid_argument for a longer one.
[[nodiscard]] inline std::string read_text(const std::string& path) {
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
inline void write_text(const std::string& path, std::string_view text) {
  std::unique_ptr<std::FILE, close_file> file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) throw std::system_error(errno, std::generic_category(), path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (std::fclose(file.release()) != 0 || !written) {
    throw std::system_error(errno, std::generic_category(), path);
  }
}

}  // namespace cohort::coordination::detail
