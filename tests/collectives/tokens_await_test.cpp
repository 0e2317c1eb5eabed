// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Every verb under the tokens of coroutines.

#include <system_error>
#include <tuple>

#include "collectives/token_matrix.hpp"

namespace {

using namespace collectives_test;
using task = asio::awaitable<void>;

template <class Verb>
task awaited(bench& b, Verb verb) {
  co_await verb(b, asio::use_awaitable);
}

template <class Verb>
task as_tuple(bench& b, Verb verb, bool& good) {
  const auto result = co_await verb(b, cohort::as_tuple);
  good = !std::get<0>(result);
}

template <class Verb>
task redirected(bench& b, Verb verb, std::error_code& code) {
  co_await verb(b, asio::redirect_error(asio::use_awaitable, code));
}

}  // namespace

TEST_CASE("every verb can be awaited") {
  with_every_verb([](bench& b, auto verb) { return runs(b, awaited(b, verb)); });
}

TEST_CASE("every verb gives a tuple on request") {
  with_every_verb([](bench& b, auto verb) {
    bool good = false;
    return runs(b, as_tuple(b, verb, good)) && good;
  });
}

TEST_CASE("every verb puts its error into a variable") {
  with_every_verb([](bench& b, auto verb) {
    std::error_code code = cohort::make_error_code(cohort::errc::stalled);
    return runs(b, redirected(b, verb, code)) && !code;
  });
}
