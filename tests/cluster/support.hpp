// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Launches workers for a test case, and looks at how things fail.

#include <cohort/cluster/workers.hpp>

#include <chrono>
#include <exception>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "support/caught.hpp"
#include "support/run.hpp"

namespace cohort_test {

using namespace std::chrono_literals;
using cohort::errc;
using cohort::cluster::call_options;
using cohort::cluster::launch_options;
using cohort::cluster::worker_state;
using cohort::cluster::workers;

/// Drops what the ranks print, which no test looks at that does not ask for it.
inline launch_options quiet(int ranks) {
  return launch_options{}.ranks(ranks).sink(cohort::cluster::drop());
}

using test_body = std::function<asio::awaitable<void>(workers)>;

/// Launches, runs the body, shuts down, and checks that all workers have left as they should.
inline void with_workers(const launch_options& options, const test_body& body) {
  asio::io_context io;
  auto all = [&]() -> asio::awaitable<void> {
    auto launching = cohort::cluster::launch(io, options);
    const workers launched = co_await std::move(launching);
    auto working = body(launched);
    co_await std::move(working);
    co_await launched.shutdown();
    for (const int rank : launched.ids()) CHECK(launched.state(rank) == worker_state::gone);
  };
  run(io, all());
}

/// Whether a process has ended; who has to reap it may not have done so yet.
inline bool is_gone(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(status, text);
  const std::size_t name_end = text.rfind(')');
  return name_end == text.npos || text.compare(name_end, 3, ") Z") == 0;
}
inline bool ends(int pid, std::chrono::seconds within = 10s) {
  const auto limit = std::chrono::steady_clock::now() + within;
  while (!is_gone(pid)) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

}  // namespace cohort_test
