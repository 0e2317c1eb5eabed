// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Where the output of the ranks can go: the console, files, nowhere, a function.

#include <cohort/cluster/output/line.hpp>
#include <cohort/core/error.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace cohort::cluster {

/// "[3] text" to stdout or stderr, whichever the rank has written to. What could command a terminal
/// is shown as `escaped` does, so that no rank can move the cursor or set a title.
[[nodiscard]] output_sink console();

/// To a file per rank and stream: `%r` in the pattern is the rank, `%s` "out" or "err", `%%` a
/// percent sign; ranks whose names are equal share a file. A file that exists is replaced when its
/// first line comes, its folder must be there. The bytes are those that the rank has written.
/// Throws errc::invalid_argument for another `%`.
template <class Any = void>
[[nodiscard]] output_sink to_files(std::string pattern);

/// To nobody: the ranks' output is still read, so they never wait.
[[nodiscard]] inline output_sink drop() {
  return [](const output_line&) {};
}

/// The text as a terminal may have it: bytes that are no UTF-8, and control characters but the
/// tabulator, become `\x1b` and the like.
[[nodiscard]] std::string escaped(std::string_view text);

/// What console() writes for a line, with its newline.
[[nodiscard]] std::string console_line(const output_line& line);

// ---- implementation --------------------------------------------------------------------------

namespace detail {

/// The length of the character that the text begins with, 0 if it is not valid UTF-8, not in its
/// shortest form, or a control character of the upper half (U+0080 to U+009F).
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  std::size_t length = 0;
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  if (first >= 0xe0 && first <= 0xef) length = 3;
  if (first >= 0xf0 && first <= 0xf4) length = 4;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  if (first == 0xc2 && second < 0xa0) return 0;
  if (first == 0xe0 && second < 0xa0) return 0;
  if (first == 0xed && second > 0x9f) return 0;  // halves of surrogate pairs
  if (first == 0xf0 && second < 0x90) return 0;
  if (first == 0xf4 && second > 0x8f) return 0;
  return length;
}

/// The files of one sink. Used by the queue's thread only.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class output_files {
 public:
  explicit output_files(std::string pattern) : pattern_(std::move(pattern)) {
    static_cast<void>(name_for({}));  // a wrong pattern is told where it is written
  }

  void write(const output_line& line) {
    std::FILE* const file = open(name_for(line));
    std::fwrite(line.text.data(), 1, line.text.size(), file);
    if (line.complete) std::fputc('\n', file);
    // Flushed line by line: what a rank said last is wanted most when the manager was killed too.
    if (std::fflush(file) != 0) throw std::system_error(errno, std::generic_category());
  }

 private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  [[nodiscard]] std::string name_for(const output_line& line) const {
    std::string name;
    for (std::size_t i = 0; i < pattern_.size(); ++i) {
      if (pattern_[i] != '%') {
        name += pattern_[i];
        continue;
      }
      const char which = ++i < pattern_.size() ? pattern_[i] : '\0';
      if (which == 'r') {
        name += rank_name(line.rank);
      } else if (which == 's') {
        name += name_of(line.stream);
      } else if (which == '%') {
        name += '%';
      } else {
        throw error(errc::invalid_argument, "to_files: only %r, %s and %% are known");
      }
    }
    return name;
  }

  std::FILE* open(const std::string& name) {
    const auto known = open_.find(name);
    if (known != open_.end()) return known->second.get();
    const char* mode = begun_.contains(name) ? "ae" : "we";
    std::unique_ptr<std::FILE, closer> file(std::fopen(name.c_str(), mode));
    if (!file && errno == EMFILE) {  // more ranks than descriptors: begin anew, appending
      open_.clear();
      file.reset(std::fopen(name.c_str(), mode));
    }
    if (!file) throw std::system_error(errno, std::generic_category(), name);
    begun_.insert(name);
    return open_.emplace(name, std::move(file)).first->second.get();
  }

  std::string pattern_;
  std::map<std::string, std::unique_ptr<std::FILE, closer>> open_;
  std::set<std::string> begun_;
};

}  // namespace detail

inline std::string escaped(std::string_view text) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const bool control = (first < 0x20 && first != '\t') || first == 0x7f;
    const std::size_t length = control ? 0 : detail::utf8_length(text);
    if (length == 0) {
      result += "\\x";
      result += digits[first >> 4U];
      result += digits[first & 15U];
      text.remove_prefix(1);
    } else {
      result += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return result;
}

inline std::string console_line(const output_line& line) {
  std::string text("[");
  text += rank_name(line.rank);
  text += "] ";
  text += escaped(line.text);
  text += '\n';
  return text;
}

inline output_sink console() {
  return [](const output_line& line) {
    const std::string text = console_line(line);
    std::FILE* const to = line.stream == output_stream::out ? stdout : stderr;
    std::fwrite(text.data(), 1, text.size(), to);
    std::fflush(to);
  };
}

template <class Any>
output_sink to_files(std::string pattern) {
  // Shared: a function object must be copyable.
  return [files = std::make_shared<detail::output_files<Any>>(std::move(pattern))](
             const output_line& line) { files->write(line); };
}

}  // namespace cohort::cluster
