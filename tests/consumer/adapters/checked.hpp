// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the programs beside it share: the run of one coroutine, and checks that it makes.

#include <cohort/collectives.hpp>
#include <cohort/comm.hpp>
#include <cohort/p2p.hpp>

#include <cstdio>
#include <source_location>

namespace checked {

using task = asio::awaitable<void>;

inline int failures = 0;

inline void expect(bool good, std::source_location where = std::source_location::current()) {
  if (good) return;
  ++failures;
  std::fprintf(stderr, "%s:%u: wrong\n", where.file_name(), static_cast<unsigned>(where.line()));
}

/// Returns what `main` returns: 1 if a check was wrong.
inline int run(int argc, char** argv, task (*body)(cohort::communicator)) {
  cohort::environment env{argc, argv};
  asio::io_context io;
  cohort::communicator world{io};
  asio::co_spawn(io, body(world), cohort::rethrow);
  io.run();
  return failures == 0 ? 0 : 1;
}

}  // namespace checked
