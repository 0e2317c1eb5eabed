// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <vector>

#include "support/catch_run.hpp"

int cohort_test::run_catch(int argc, char** argv) {
  // Ranks must run the same cases at the same time, whatever the default order of this Catch2 is.
  char option[] = "--order";
  char value[] = "decl";
  std::vector<char*> arguments(argv, argv + argc);
  arguments.insert(arguments.begin() + 1, {option, value});
  return Catch::Session().run(static_cast<int>(arguments.size()), arguments.data());
}
