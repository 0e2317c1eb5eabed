// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Every verb deferred, and in a parallel group.

#include <asio/experimental/parallel_group.hpp>

#include <chrono>
#include <system_error>

#include "collectives/token_matrix.hpp"

namespace {

using namespace collectives_test;

}  // namespace

TEST_CASE("every verb can be deferred, and starts when it is called") {
  with_every_verb([](bench& b, auto verb) {
    int calls = 0;
    std::error_code code;
    auto operation = verb(b, cohort::deferred);
    drive(b);
    std::move(operation)([&](std::error_code error, auto&&...) {
      ++calls;
      code = error;
    });
    drive(b);
    return calls == 1 && !code;
  });
}

TEST_CASE("every verb in a parallel group with a timer") {
  with_every_verb([](bench& b, auto verb) {
    asio::steady_timer soon(b.io, std::chrono::milliseconds(1));
    int calls = 0;
    std::error_code code;
    asio::experimental::make_parallel_group(verb(b, cohort::deferred),
                                            soon.async_wait(cohort::deferred))
        .async_wait(asio::experimental::wait_for_all(),
                    [&](std::array<std::size_t, 2>, std::error_code error, auto&&...) {
                      ++calls;
                      code = error;
                    });
    drive(b);
    return calls == 1 && !code;
  });
}
