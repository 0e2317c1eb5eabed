// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A folder for one test case, and programs in it that the test writes itself.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace cohort_test {

using namespace std::chrono_literals;
using strings = std::vector<std::string>;

/// A new folder, which is removed with all that is in it.
class folder {
 public:
  folder() {
    std::string name = (std::filesystem::temp_directory_path() / "cohort-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    where_ = name;
  }
  ~folder() {
    std::error_code ignored;
    std::filesystem::remove_all(where_, ignored);
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;

  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] std::string path(const std::string& name) const { return where_ + "/" + name; }
  /// A shell script that can be run.
  [[nodiscard]] std::string script(const std::string& name, const std::string& body) const {
    std::string file = path(name);
    std::ofstream(file) << "#!/bin/sh\n" << body << "\n";
    if (::chmod(file.c_str(), 0700) != 0) throw std::runtime_error("chmod");
    return file;
  }

 private:
  std::string where_;
};

/// Empty if it cannot be read, as what tells of a process that has just ended.
inline std::string contents(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();  // throws nothing, unlike an iterator
  return text.str();
}

/// Whether it runs, or is a zombie of somebody else's. Zombies whose parent does not reap them, as
/// in a container without an init, count as gone.
inline bool runs(int pid) {
  const std::string stat = contents("/proc/" + std::to_string(pid) + "/stat");
  const auto state = stat.rfind(") ");
  return state != std::string::npos && stat[state + 2] != 'Z' && stat[state + 2] != 'X';
}

/// Waits until the condition holds; gives up after twenty seconds.
template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

}  // namespace cohort_test
