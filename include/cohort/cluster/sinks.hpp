// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What ranks print, line by line, and where it can go: the console, files, nowhere, a
/// function.
///
/// ```
/// auto options = cluster::launch_options{}.sink(cluster::to_files("out/%r.%s"));
/// options.sink([](const cluster::output_line& line) { /* line.rank, line.text */ });
/// ```

#include <cohort/core/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace cohort::cluster {

/// Which of its two outputs a rank has written to.
enum class output_stream { out, err };

/// The "rank" of what the launcher itself prints, and of what ranks print before they are
/// connected.
inline constexpr int launcher_rank = -1;

/// A line, or a part of one. Nothing of it lives longer than the call that brings it.
struct output_line {
  int rank = launcher_rank;
  output_stream stream = output_stream::out;
  std::string_view text;  ///< the bytes as they were written, without the newline
  /// The newline was there. It is not behind the parts of an overlong line but the last, nor behind
  /// the last line of a stream that ends without one: texts joined, with a newline after those that
  /// are complete, are the stream again.
  bool complete = true;
  /// Not zero: no line of the rank, but a notice that so many lines of it were dropped here.
  std::uint64_t dropped = 0;
};

/// Gets the lines of all ranks. It may block and it may throw (see output_queue). It should own all
/// that it uses: one that blocks for longer than the queue waits for it may outlive the queue.
using output_sink = std::function<void(const output_line&)>;

/// What happens when the ranks print faster than the sinks take.
enum class overflow_policy {
  drop_oldest,  ///< the oldest waiting lines are dropped, counted, and replaced by a notice
  block,        ///< the ranks wait
};

/// "out" or "err".
[[nodiscard]] constexpr std::string_view name_of(output_stream stream) noexcept {
  return stream == output_stream::out ? "out" : "err";
}

/// "3", or "launcher".
[[nodiscard]] inline std::string rank_name(int rank) {
  return rank < 0 ? std::string("launcher") : std::to_string(rank);
}

/// Longer lines are cut into parts of this size.
inline constexpr std::size_t default_longest_line = 64 * 1024;

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
  return "[" + rank_name(line.rank) + "] " + escaped(line.text) + "\n";
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
