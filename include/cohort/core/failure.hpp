// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A failure with the facts that a std::error_code cannot carry, and the text that tells
/// them.

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace cohort {

/// What went wrong last: the code that the awaiter received, and one line a person can act on.
struct failure {
  std::error_code code;
  std::string text;
};

/// Builds the line of a failure: "rank 2: all_reduce #17: count=3, expected=4".
/// Only used when something has already failed, so it may allocate.
class failure_text {
 public:
  /// The verb is empty where no operation is concerned; a negative rank is printed as '?'.
  failure_text(int rank, std::string_view verb, std::uint64_t sequence);
  /// The same without a sequence number, for what happens outside any numbered operation.
  failure_text(int rank, std::string_view verb);

  /// Appends "field=value".
  template <std::integral Value>
  failure_text& with(std::string_view field, Value value) {
    return append(field, std::to_string(value));
  }
  failure_text& with(std::string_view field, std::string_view value) {
    return append(field, value);
  }
  /// Appends a remark in words.
  failure_text& note(std::string_view words);

  [[nodiscard]] const std::string& str() const noexcept { return text_; }
  /// The finished failure; ends with the message of the code.
  [[nodiscard]] failure with_code(std::error_code code) const;

 private:
  failure_text& append(std::string_view field, std::string_view value);
  void separate();

  std::string text_;
  bool first_ = true;
};

inline failure_text::failure_text(int rank, std::string_view verb) {
  text_ = rank < 0 ? std::string("rank ?") : "rank " + std::to_string(rank);
  if (!verb.empty()) {
    text_ += ": ";
    text_ += verb;
  }
}

inline failure_text::failure_text(int rank, std::string_view verb, std::uint64_t sequence)
    : failure_text(rank, verb) {
  text_ += " #" + std::to_string(sequence);
}

inline failure_text& failure_text::note(std::string_view words) {
  separate();
  text_ += words;
  return *this;
}

inline failure failure_text::with_code(std::error_code code) const {
  return failure{code, text_ + ": " + code.message()};
}

inline failure_text& failure_text::append(std::string_view field, std::string_view value) {
  separate();
  text_ += field;
  text_ += '=';
  text_ += value;
  return *this;
}

inline void failure_text::separate() {
  text_ += first_ ? ": " : ", ";
  first_ = false;
}

}  // namespace cohort
