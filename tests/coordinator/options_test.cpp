// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The options of a coordinator as text and in files. Part of the executable coordinator.plan.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "coordinator/support.hpp"
#include "coordinator/text_files.hpp"

namespace {

using cohort::coordinator_options;
using cohort::parse_options;
using cohort::to_text;
using cohort::coordination::option_row;
using cohort::coordination::option_table;
using cohort_test::has;
using cohort_test::refusal_of;
using cohort_test::scratch_file;

/// Another value than the default, in the range of the row, and allowed beside the other rows.
std::uint64_t other_value(const option_row& row) {
  const std::uint64_t now = row.get(coordinator_options());
  if (row.is_flag()) return 1 - now;
  if (row.name == "query_timeout") return now - 1;
  if (row.name == "slots") return 1;
  return now == row.most ? now - 1 : now + 1;
}

void check_same(const coordinator_options& a, const coordinator_options& b) {
  for (const option_row& row : option_table()) {
    INFO(row.name);
    CHECK(row.get(a) == row.get(b));
  }
  CHECK(a.timeline == b.timeline);
  CHECK(a.tune_file == b.tune_file);
  CHECK(a.frozen_plan == b.frozen_plan);
}

}  // namespace

TEST_CASE("every option is read back from its text", "[coordinator][options]") {
  for (const option_row& row : option_table()) {
    INFO(row.name);
    coordinator_options one;
    row.set(one, other_value(row));
    check_same(parse_options(to_text(one)), one);
    check_same(parse_options(describe(one)), one);
    CHECK(row.parse(row.print(row.most)) == row.most);
    CHECK(row.parse(row.print(row.least)) == row.least);
  }
  coordinator_options all;
  for (const option_row& row : option_table()) row.set(all, other_value(row));
  all.timeline = "a \"file\" \\ of\nmine.json";
  all.tune_file = "tuned \x01.txt";
  all.frozen_plan = {{"a b", "c\"d"}, {"#", "\xC3\xA9\x01"}};
  check_same(parse_options(to_text(all)), all);
  // What a text does not name stays.
  check_same(parse_options("# nothing\n\n", all), all);
  all.piece = 8192;
  check_same(parse_options("  piece=8192\r\n", all), all);
}

TEST_CASE("durations are exact in text", "[coordinator][options]") {
  coordinator_options options;
  for (const std::int64_t nanoseconds :
       {0L, 1L, 250'000'000L, 86'400'000'000'001L, 31'535'999'999'999'999L}) {
    options.stall_warning = std::chrono::nanoseconds(nanoseconds);
    CHECK(parse_options(to_text(options)).stall_warning == options.stall_warning);
  }
  CHECK(parse_options("stall_warning=0.25").stall_warning == std::chrono::milliseconds(250));
  CHECK(parse_options("stall_warning=1e-3s").stall_warning == std::chrono::milliseconds(1));
  CHECK(parse_options("stall_warning=500ms").stall_warning == std::chrono::milliseconds(500));
}

TEST_CASE("a text that is no options is refused with the place", "[coordinator][options]") {
  const auto refused = [](std::string_view text) {
    return refusal_of([text] { static_cast<void>(parse_options(text)); });
  };
  CHECK(has(refused("piece=8192\npeice=1"), "line 2: unknown option 'peice'"));
  CHECK(has(refused("piece=8192 piece=8192"), "line 1: piece is there twice"));
  CHECK(has(refused("piece"), "line 1: no value: 'piece'"));
  CHECK(has(refused("piece=1"), "piece=1 is not a number in the range of piece"));
  CHECK(has(refused("piece=8192x"), "piece=8192x is not a number in the range of piece"));
  CHECK(has(refused("piece=-1"), "is not a number in the range of piece"));
  CHECK(has(refused("piece="), "is not a number in the range of piece"));
  CHECK(has(refused("strict=2"), "is not a number in the range of strict"));
  CHECK(has(refused("stall_warning=nan"), "is not a duration such as 60, 60s or 500ms"));
  CHECK(has(refused("stall_warning=inf"), "is not a duration such as 60, 60s or 500ms"));
  CHECK(has(refused("stall_warning=-1"), "is not a duration such as 60, 60s or 500ms"));
  CHECK(has(refused("stall_warning=1us"), "is not a duration such as 60, 60s or 500ms"));
  CHECK(has(refused("query_timeout=0.5ms"), "in the range of query_timeout"));
  CHECK(has(refused("stall_warning=4e7"), "is not a duration such as 60, 60s or 500ms"));
  CHECK(has(refused("cache_keep=4096"), "is not below cache_capacity"));
  CHECK(has(refused("timeline=file"), "line 1: timeline is not a name in quotes"));
  CHECK(has(refused("timeline=\"a\"\ntimeline=\"b\""), "line 2: timeline is there twice"));
  CHECK(has(refused("\npack=\"a\" \"b"), "line 2: not a name in quotes"));
  CHECK(has(refused("pack=\"a\"\npack=\"a\""), "line 2: 'a' is there twice"));
  CHECK(has(refused("pack=\"a\"\npack="), "line 2: an empty pack"));
  CHECK(has(refused("pack=\"a\"\npack=#b"), "line 2: not a name in quotes"));
  CHECK(has(refused("pack= "), "line 1: not a name in quotes"));
  CHECK(has(refused("pack=a"), "line 1: not a name in quotes"));
}

TEST_CASE("options go to a file and come back", "[coordinator][options]") {
  const scratch_file file("options");
  coordinator_options options;
  options.piece = 12345;
  options.frozen_plan = {{"a", "b"}};
  cohort::save_options(file.path(), options);
  check_same(cohort::load_options(file.path()), options);
  CHECK_THROWS_AS(cohort::load_options(file.path() + ".none"), std::system_error);
  CHECK_THROWS_AS(cohort::save_options(file.path() + "/none", options), std::system_error);
  file.fill(std::string((std::size_t{64} << 20U) + 1, ' '));
  CHECK(has(refusal_of([&] { static_cast<void>(cohort::load_options(file.path())); }),
            "longer than 64 MiB"));
}

TEST_CASE("the environment wins over a file", "[coordinator][options]") {
  ::setenv("COHORT_PIECE", "16384", 1);
  const auto options = cohort::with_environment(parse_options("piece=8192"));
  ::unsetenv("COHORT_PIECE");
  CHECK(options.piece == 16384);
}

TEST_CASE("a coordinator's options are read back", "[coordinator][options]") {
  cohort_test::coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        CHECK(coord.options().piece == 54321);
        check_same(parse_options(to_text(coord.options())), coord.options());
        co_return;
      },
      parse_options("piece=54321"));
}
