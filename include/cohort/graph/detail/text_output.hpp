// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Where the text of a picture goes: a string, or a file that is written piece by piece.

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>

namespace cohort::graph::detail {

/// A file is replaced if it exists. The first error is kept, and nothing is written after it.
class text_output {
 public:
  explicit text_output(std::string& into) noexcept : text_(&into) {}
  explicit text_output(const std::string& path, std::string& buffer)
      : text_(&buffer), file_(std::fopen(path.c_str(), "we")), to_file_(true) {
    if (file_ == nullptr) failed_ = {errno, std::generic_category()};
  }
  text_output(const text_output&) = delete;
  text_output& operator=(const text_output&) = delete;
  ~text_output() { static_cast<void>(finish()); }

  template <class... Text>
  text_output& put(const Text&... parts) {
    (text_->append(parts), ...);
    if (to_file_ && text_->size() > piece) flush();
    return *this;
  }

  /// Everything is written. Says what has failed, if anything has.
  std::error_code finish() noexcept {
    if (file_ == nullptr) return failed_;
    flush();
    if (std::fclose(file_) != 0 && !failed_) failed_ = {errno, std::generic_category()};
    file_ = nullptr;
    return failed_;
  }

 private:
  static constexpr std::size_t piece = std::size_t{1} << 16U;

  void flush() noexcept {
    if (!failed_ && std::fwrite(text_->data(), 1, text_->size(), file_) != text_->size()) {
      failed_ = {errno, std::generic_category()};
    }
    text_->clear();
  }

  std::string* text_;
  std::FILE* file_ = nullptr;
  bool to_file_ = false;
  std::error_code failed_;
};

}  // namespace cohort::graph::detail
