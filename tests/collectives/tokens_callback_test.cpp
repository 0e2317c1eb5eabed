// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Every verb with callbacks, futures and nobody who waits.

#include <cohort/progress/future.hpp>

#include <system_error>

#include "collectives/token_matrix.hpp"

namespace {

using namespace collectives_test;
using task = asio::awaitable<void>;

template <class Future>
task await_future(Future future) {
  co_await std::move(future);
}

}  // namespace

TEST_CASE("every verb calls a callback once, and not before it returns") {
  with_every_verb([](bench& b, auto verb) {
    int calls = 0;
    std::error_code code;
    verb(b, [&](std::error_code error, auto&&...) {
      ++calls;
      code = error;
    });
    const bool early = calls != 0;
    drive(b);
    return calls == 1 && !early && !code;
  });
}

TEST_CASE("every verb can be detached") {
  with_every_verb([](bench& b, auto verb) {
    verb(b, asio::detached);
    drive(b);
    return true;
  });
}

TEST_CASE("every verb gives a std::future") {
  with_every_verb([](bench& b, auto verb) {
    auto future = verb(b, asio::use_future);
    drive(b);
    static_cast<void>(future.get());
    return true;
  });
}

TEST_CASE("every verb gives a cohort::future") {
  with_every_verb([](bench& b, auto verb) {
    auto future = verb(b, cohort::as_future);
    return runs(b, await_future(std::move(future)));
  });
}
