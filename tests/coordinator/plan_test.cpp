// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Frozen plans: the same packs in every run.
#include <cohort/core/log.hpp>
#include <cohort/progress/when_all.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "coordinator/support.hpp"
#include "coordinator/text_files.hpp"

namespace {

using namespace std::chrono_literals;
using cohort_test::coordinated;
using cohort_test::has;
using cohort_test::refusal_of;

constexpr std::size_t tensors = 24;

std::size_t elements(std::size_t i) { return 11 + 17 * i; }

cohort::coordinator_options planned() {
  cohort::coordinator_options options;
  for (std::size_t i = 0; i < tensors; ++i) {
    if (i % 6 == 0) options.frozen_plan.emplace_back();
    options.frozen_plan.back().push_back("g" + std::to_string(i));
  }
  return options;
}

/// The sums of all tensors, submitted in another order in each run and on each rank, are the same
/// in each run. `alone`: of the tensors, so many are in no pack.
void same_in_each_run(const cohort::coordinator_options& options, std::size_t alone, int runs) {
  std::vector<std::vector<float>> first;
  std::mt19937 random(4711);
  for (int run = 0; run < runs; ++run) {
    coordinated(
        [&](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
          std::mt19937 values(static_cast<unsigned>(world.rank()));
          std::vector<std::vector<float>> data;
          for (std::size_t i = 0; i < tensors; ++i) {
            auto& one = data.emplace_back(elements(i));
            for (float& value : one) {
              value = std::uniform_real_distribution<float>(-1.0F, 1.0F)(values);
            }
          }
          std::vector<std::size_t> order(tensors);
          std::iota(order.begin(), order.end(), std::size_t{0});
          random.discard(static_cast<unsigned>(world.rank()));
          std::shuffle(order.begin(), order.end(), random);
          std::vector<cohort::future<void>> all;
          for (const std::size_t i : order) {
            all.push_back(coord.all_reduce("g" + std::to_string(i), data[i], cohort::op::sum,
                                           cohort::as_future));
            if (i % 5 == 0)
              co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
          }
          co_await cohort::when_all(std::move(all));
          CHECK(coord.stats().packs == options.frozen_plan.size());
          CHECK(coord.stats().packed == tensors - alone);
          if (first.empty()) first = data;
          REQUIRE(data == first);
        },
        options);
  }
}

std::vector<cohort::named_size> sizes() {
  std::vector<cohort::named_size> all;
  for (std::size_t i = tensors; i-- > 0;) {
    all.push_back({"g" + std::to_string(i), elements(i) * sizeof(float)});
  }
  return all;
}

}  // namespace

TEST_CASE("determinism: bit-identical sums whatever the order of submission",
          "[coordinator][plan]") {
  same_in_each_run(planned(), 0, 100);
}

TEST_CASE("determinism: a plan sorted by name", "[coordinator][plan]") {
  cohort::coordinator_options options;
  options.fusion_threshold = elements(20) * sizeof(float);
  options.fusion_buffer = 5000;
  options.frozen_plan = cohort::sorted_plan(sizes(), options);
  CHECK(options.frozen_plan.size() == 4);
  same_in_each_run(options, 3, 100);
}

TEST_CASE("determinism: a plan from a file", "[coordinator][plan]") {
  const cohort_test::scratch_file file("plan");
  cohort::save_plan(file.path(), planned().frozen_plan);
  cohort::coordinator_options options;
  options.frozen_plan = cohort::load_plan(file.path());
  CHECK(options.frozen_plan == planned().frozen_plan);
  same_in_each_run(options, 0, 100);
}

TEST_CASE("a sorted plan follows from names and sizes", "[coordinator][plan]") {
  cohort::coordinator_options options;
  options.fusion_threshold = 4000;
  options.fusion_buffer = 8000;
  using plan = cohort::fusion_plan;
  const plan expected{{"a", "b", "c"}, {"d"}};
  CHECK(cohort::sorted_plan({{"d", 3999}, {"a", 4000}, {"large", 4001}, {"c", 4}, {"b", 3900}},
                            options) == expected);
  CHECK(cohort::sorted_plan({{"b", 3900}, {"c", 4}, {"large", 4001}, {"d", 3999}, {"a", 4000}},
                            options) == expected);
  CHECK(cohort::sorted_plan(std::vector<cohort::named_size>{}, options).empty());
  std::vector<float> w(3);
  std::vector<double> b(4);
  CHECK(cohort::sorted_plan(cohort::bundle("model").add("w", w).add("b", b)) == plan{{"b", "w"}});
  CHECK(has(refusal_of([] { static_cast<void>(cohort::sorted_plan({{"a", 1}, {"a", 2}})); }),
            "'a' is given twice"));
}

TEST_CASE("a plan is read back from its text, whatever the names", "[coordinator][plan]") {
  std::string every;
  for (int c = 0; c < 256; ++c) every += static_cast<char>(c);
  const cohort::fusion_plan plan{{every}, {"a b", " ", "\"", "\\x41"}, {std::string(65535, 'x')}};
  CHECK(cohort::parse_plan(cohort::to_text(plan)) == plan);
  CHECK(cohort::parse_plan("# mine\n\n\"a\"  \"b\" \r\n\"c\"") ==
        cohort::fusion_plan{{"a", "b"}, {"c"}});
  CHECK(cohort::parse_plan("").empty());
}

TEST_CASE("a text that is no plan is refused with the place", "[coordinator][plan]") {
  const auto refused = [](const std::string& text) {
    return refusal_of([&] { static_cast<void>(cohort::parse_plan(text)); });
  };
  CHECK(has(refused("a"), "line 1: not a name in quotes"));
  CHECK(has(refused("\"a"), "line 1: not a name in quotes"));
  CHECK(has(refused("\"a\\"), "line 1: not a name in quotes"));
  CHECK(has(refused("\"\\x4\""), "line 1: not a name in quotes"));
  CHECK(has(refused("\"\\n\""), "line 1: not a name in quotes"));
  CHECK(has(refused("\"a\"\"b\""), "line 1: no blank between two names"));
  CHECK(has(refused("\"a\"\n\"\""), "line 2: an empty name"));
  CHECK(has(refused("\"a\"\n\"b\" \"a\""), "line 2: 'a' is there twice"));
  CHECK(has(refused('"' + std::string(65536, 'x') + '"'), "a name of more than 65535 bytes"));
}

TEST_CASE("a frozen plan whose tensor stays away is given up", "[coordinator][plan]") {
  auto options = planned();
  options.plan_patience = 200ms;
  cohort::log::capture lines;
  coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        std::vector<float> data(3, 1.0F);
        co_await coord.all_reduce("g1", data, cohort::op::sum);  // g0, g2 … never come
        CHECK(data == std::vector<float>(3, static_cast<float>(coord.size())));
        if (coord.rank() == 0) CHECK(coord.stats().packs == 0);
      },
      options);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  CHECK(lines.contains("the frozen plan is given up; it waits for 'g0' 'g2'") == (rank == 0));
}
