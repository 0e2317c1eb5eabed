// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The small vocabulary: errors, failures, ranks, outcomes, the clock, durations.

#include <cohort/core/config.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/core/time.hpp>

#include <cstdlib>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "support/catch.hpp"

using cohort::errc;
using cohort::outcome;
using cohort::ranks;

TEST_CASE("every error code has a category, a text of its own, and converts by itself") {
  std::set<std::string> texts;
  for (int value = 1; value <= static_cast<int>(errc::diverged); ++value) {
    const std::error_code code = static_cast<errc>(value);
    CHECK(code.category() == cohort::cohort_category());
    CHECK(texts.insert(code.message()).second);
  }
  CHECK(std::string(cohort::cohort_category().name()) == "cohort");
  CHECK(texts.count(std::error_code(static_cast<errc>(9999)).message()) == 0);
}

TEST_CASE("codes compare with the generic conditions of the standard library") {
  CHECK(std::error_code(errc::deadline_exceeded) == std::errc::timed_out);
  CHECK(std::error_code(errc::message_too_long) == std::errc::message_size);
  CHECK(std::error_code(errc::bad_root) == std::errc::invalid_argument);
  CHECK(std::error_code(errc::stalled) != std::errc::timed_out);
}

TEST_CASE("exceptions carry their facts and are system errors") {
  const cohort::mismatch_error mismatch("count", {1, 3}, "all_reduce #4");
  CHECK(mismatch.field() == "count");
  CHECK(mismatch.ranks() == std::vector<int>{1, 3});
  CHECK(mismatch.code() == errc::cross_rank_mismatch);
  CHECK_THROWS_AS(throw cohort::deadline_error("recv"), std::system_error);
  CHECK_THROWS_WITH(throw cohort::peer_lost_error({2}, "recv"),
                    Catch::Matchers::ContainsSubstring("recv"));
}

TEST_CASE("what was withdrawn is not said to be closed") {
  const cohort::withdrawn_error problem({2}, "all_reduce 'w': withdrawn by rank 2");
  CHECK(problem.code() == errc::withdrawn);
  CHECK(std::string(problem.what()).find("closed") == std::string::npos);
}

TEST_CASE("a failure names rank, verb, number and values") {
  const auto failure = cohort::failure_text(2, "all_reduce", 17)
                           .with("count", 3)
                           .with("type", "double")
                           .note("out of place")
                           .with_code(errc::size_mismatch);
  CHECK(failure.code == errc::size_mismatch);
  CHECK(failure.text ==
        "rank 2: all_reduce #17: count=3, type=double, out of place: "
        "the buffer sizes do not fit each other");
  CHECK(cohort::failure_text(-1, "").str() == "rank ?");
}

TEST_CASE("ranks keep their order and refuse nonsense") {
  const ranks list{4, 0, 2};
  CHECK(list.size() == 3);
  CHECK(list[0] == 4);
  CHECK(list.position_of(2) == 2);
  CHECK(list.position_of(1) == -1);
  CHECK(list.contains(0));
  CHECK(list.str() == "4, 0, 2");
  CHECK(ranks(std::vector<int>{4, 0, 2}) == list);
  CHECK(ranks::all(3) == ranks{0, 1, 2});
  CHECK(ranks::stride(1, 6, 2) == ranks{1, 3, 5});
  CHECK(ranks::all(0).empty());
  CHECK_THROWS_AS((ranks{1, 1}), cohort::error);
  CHECK_THROWS_AS((ranks{-1}), cohort::error);
  CHECK_THROWS_AS(ranks::stride(0, 4, 0), cohort::error);
}

TEST_CASE("an outcome holds a value or the error that took its place") {
  const outcome<int> good = cohort::outcome_of([] { return 7; });
  CHECK(good.has_value());
  CHECK(good.value() == 7);
  CHECK(good.error() == nullptr);

  const auto bad = cohort::outcome_of([]() -> int { throw std::runtime_error("no"); });
  CHECK_FALSE(bad);
  CHECK_THROWS_AS(bad.value(), std::runtime_error);
  CHECK(bad.error() != nullptr);
  CHECK(bad.value_or(3) == 3);

  outcome<std::unique_ptr<int>> owner(std::make_unique<int>(5));
  CHECK(*std::move(owner).value() == 5);
}

TEST_CASE("an outcome of nothing still tells success from failure") {
  CHECK(cohort::outcome_of([] {}).has_value());
  const auto bad = cohort::outcome_of([] { throw std::runtime_error("no"); });
  CHECK_THROWS_AS(bad.value(), std::runtime_error);
}

TEST_CASE("a clock that a test moves is a time source") {
  struct by_hand {
    cohort::steady_clock::time_point time{};
    [[nodiscard]] cohort::steady_clock::time_point now() const { return time; }
  };
  static_assert(cohort::time_source<by_hand> && !cohort::time_source<int>);
  const cohort::real_clock real;
  const auto before = real.now();
  CHECK(real.now() >= before);
}

TEST_CASE("a duration has one spelling for all variables") {
  using namespace std::chrono_literals;
  using cohort::parse_duration;
  for (const char* minute : {"60", "60s", "60000ms", "6e1", "60.0s"}) {
    CHECK(parse_duration(minute) == std::optional<std::chrono::nanoseconds>(60s));
  }
  CHECK(parse_duration("500ms") == std::optional<std::chrono::nanoseconds>(500ms));
  CHECK(parse_duration("0.25s") == std::optional<std::chrono::nanoseconds>(250ms));
  CHECK(parse_duration("0.000001ms") == std::optional<std::chrono::nanoseconds>(1ns));
  CHECK(parse_duration("0") == std::optional<std::chrono::nanoseconds>(0ns));
  CHECK(parse_duration("31536000") == std::optional(cohort::longest_duration));
  for (const char* bad : {"", "s", "ms", "1m", "1us", "1 s", " 1", "+1", "-1", "nan", "inf",
                          "1e400", "31536000.000000001", "60ss", "60sms", "0x1"}) {
    INFO(bad);
    CHECK_FALSE(parse_duration(bad));
  }
  const char* const name = "COHORT_TEST_DURATION";
  CHECK_FALSE(cohort::duration_from_environment(name));
  ::setenv(name, "", 1);
  CHECK_FALSE(cohort::duration_from_environment(name));
  ::setenv(name, "1.5", 1);
  CHECK(cohort::duration_from_environment(name) == std::optional<std::chrono::nanoseconds>(1500ms));
  ::setenv(name, "1.5m", 1);
  CHECK_THROWS_WITH(cohort::duration_from_environment(name),
                    Catch::Matchers::ContainsSubstring(
                        "COHORT_TEST_DURATION=1.5m is not a duration such as 60, 60s or 500ms"));
  ::unsetenv(name);
}

TEST_CASE("the version is one number in two spellings") {
  CHECK(std::string(cohort::version_string) == std::to_string(cohort::version_major) + "." +
                                                   std::to_string(cohort::version_minor) + "." +
                                                   std::to_string(cohort::version_patch));
}
