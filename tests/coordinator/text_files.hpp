// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of text files share.

#include <cohort/core/error.hpp>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "support/catch.hpp"

namespace cohort_test {

/// A file of this process that goes away.
class scratch_file {
 public:
  explicit scratch_file(std::string_view name) {
    const auto file = "cohort-" + std::string(name) + "-" + std::to_string(::getpid());
    path_ = (std::filesystem::temp_directory_path() / file).string();
  }
  ~scratch_file() { static_cast<void>(std::remove(path_.c_str())); }
  scratch_file(const scratch_file&) = delete;
  scratch_file& operator=(const scratch_file&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  void fill(std::string_view text) const {
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    REQUIRE(file != nullptr);
    CHECK(std::fwrite(text.data(), 1, text.size(), file) == text.size());
    CHECK(std::fclose(file) == 0);
  }

 private:
  std::string path_;
};

inline std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.is_open());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// The text of the errc::invalid_argument that a call throws.
template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const cohort::error& problem) {
    CHECK(problem.code() == cohort::errc::invalid_argument);
    return problem.what();
  }
  return "accepted";
}

}  // namespace cohort_test
