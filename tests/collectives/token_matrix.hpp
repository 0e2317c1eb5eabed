// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Runs every verb under one token.

#include "collectives/verbs.hpp"
#include "support/catch.hpp"

namespace collectives_test {

/// `use(bench, verb)` starts the verb once, drives the context until it is complete, and returns
/// whether it completed without an error.
template <class Use>
void with_every_verb(Use use) {
  bench b;
  std::apply(
      [&](auto... verb) {
        const auto check = [&](auto one) {
          INFO(decltype(one)::header);
          b.clear();
          one.before(b);
          const bool completed = use(b, one);
          one.after(b);
          CHECK(completed);
          CHECK(one.right(b));
        };
        (check(verb), ...);
      },
      all_verbs());
}

/// Drives the context until `work` is done; whether it ended without an exception.
inline bool runs(bench& b, asio::awaitable<void> work) {
  cohort_test::run(b.io, std::move(work));
  return true;
}

/// Drives the context until it has nothing to do.
inline void drive(bench& b) {
  b.io.run();
  b.io.restart();
}

}  // namespace collectives_test
