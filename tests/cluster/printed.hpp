// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What ranks print, and sinks that look at it.

#include <cohort/cluster/sinks.hpp>

#include <signal.h>

#include <cstdio>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace cohort_test {

namespace cluster = cohort::cluster;

inline void says(std::string text, bool to_stderr) {
  std::FILE* const out = to_stderr ? stderr : stdout;
  std::fwrite(text.data(), 1, text.size(), out);
}
inline void says_and_dies() {
  std::fputs("last error\n", stderr);
  std::printf("last line\nunfinished");
  ::raise(SIGKILL);
}

/// Everything that ranks print.
struct printed {
  std::mutex mutex;
  std::map<std::pair<int, cluster::output_stream>, std::string> text;

  [[nodiscard]] cluster::output_sink sink() {
    return [this](const cluster::output_line& line) {
      const std::lock_guard guard(mutex);
      std::string& all = text[{line.rank, line.stream}];
      all += line.text;
      if (line.complete) all += '\n';
    };
  }
  std::string of(int rank, cluster::output_stream stream = cluster::output_stream::out) {
    const std::lock_guard guard(mutex);
    return text[{rank, stream}];
  }
};

/// A sink that stands still at its first line until it is let go.
class gate {
 public:
  [[nodiscard]] cluster::output_sink sink() const {
    return [opened = opened_](const cluster::output_line&) { opened.wait(); };
  }
  void open() { open_.set_value(); }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
};

}  // namespace cohort_test
