// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What fuzz targets that can write their own corpus share.

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

namespace cohort_test {

/// Writes inputs to files of a folder: bytes that say what follows, then the content.
class corpus_writer {
 public:
  explicit corpus_writer(std::string prefix) : prefix_(std::move(prefix)) {}
  void operator()(std::initializer_list<int> before, std::span<const std::byte> content) {
    std::ofstream file(prefix_ + std::to_string(number_++), std::ios::binary);
    for (const int each : before) file.put(static_cast<char>(each));
    file.write(reinterpret_cast<const char*>(content.data()),
               static_cast<std::streamsize>(content.size()));
  }

 private:
  std::string prefix_;
  int number_ = 0;
};

/// The body of LLVMFuzzerInitialize: with the arguments `--corpus FOLDER` it calls `write(FOLDER)`
/// and ends the program.
template <class Write>
int write_corpus_if_asked(int argc, char** argv, Write write) {
  if (argc == 3 && std::string(argv[1]) == "--corpus") {
    write(std::string(argv[2]));
    std::exit(0);
  }
  return 0;
}

}  // namespace cohort_test
