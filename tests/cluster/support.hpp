// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Launches workers for a test case, and looks at how things fail.

#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/sinks.hpp>
#include <cohort/cluster/workers.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cluster/scripts.hpp"
#include "support/catch.hpp"
#include "support/caught.hpp"
#include "support/run.hpp"

namespace cohort_test {

namespace cluster = cohort::cluster;
using cohort::errc;
using cohort::cluster::call_options;
using cohort::cluster::launch_options;
using cohort::cluster::worker_state;
using cohort::cluster::workers;

/// The variable COHORT_MPIEXEC is for the launches that should work.
class own_launcher {
 public:
  own_launcher() {
    if (const char* const text = std::getenv("COHORT_MPIEXEC")) {
      before_ = text;
      ::unsetenv("COHORT_MPIEXEC");
    }
  }
  ~own_launcher() {
    if (!before_.empty()) ::setenv("COHORT_MPIEXEC", before_.c_str(), 1);
  }
  own_launcher(const own_launcher&) = delete;
  own_launcher& operator=(const own_launcher&) = delete;

  [[nodiscard]] std::string name() const { return before_.empty() ? "mpiexec" : before_; }

 private:
  std::string before_;
};

/// Drops what the ranks print, which no test looks at that does not ask for it.
inline launch_options quiet(int ranks) {
  return cohort::cluster::mpi_on_workers().ranks(ranks).sink(cohort::cluster::drop());
}

using test_body = std::function<asio::awaitable<void>(workers)>;

/// Launches and leaves the end to the body.
inline void with_mortal_workers(const launch_options& options, const test_body& body) {
  asio::io_context io;
  auto all = [&]() -> asio::awaitable<void> {
    auto launching = cohort::cluster::launch(io, options);
    const workers launched = co_await std::move(launching);
    auto working = body(launched);
    co_await std::move(working);
  };
  run(io, all());
}

/// Launches, runs the body, shuts down, and checks that all workers have left as they should.
inline void with_workers(const launch_options& options, const test_body& body) {
  with_mortal_workers(options, [&](workers launched) -> asio::awaitable<void> {
    auto working = body(launched);
    co_await std::move(working);
    co_await launched.shutdown();
    for (const int rank : launched.ids()) CHECK(launched.state(rank) == worker_state::gone);
  });
}

/// Waits until a process has ended; who has to reap it may not have done so yet.
inline bool ends(int pid) {
  return eventually([pid] { return !runs(pid); });
}

/// Whether the other workers live on when a signal has ended one. With MPICH they often do not:
/// when the proxy of Hydra 4.0 has reaped such a rank, it kills the others, also if it was told not
/// to
/// (-disable-auto-cleanup). It lets them be when a rank has ended by itself.
#ifdef MPICH_VERSION
inline constexpr bool others_live = false;
#else
inline constexpr bool others_live = true;
#endif

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

}  // namespace cohort_test
