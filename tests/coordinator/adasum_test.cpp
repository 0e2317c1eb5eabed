// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// op::adasum by name: packed, grouped, in process sets and persistent groups. Part of the
// executable coordinator.verbs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cohort/progress/when_all.hpp>

#include "coordinator/support.hpp"
#include "support/adasum.hpp"

namespace {

using cohort::as_future;
using cohort_test::adasum_of_all;
using cohort_test::adasum_of_gradients;
using cohort_test::gradient_of;
using cohort_test::same_bits;

template <class T>
std::vector<T> scaled(std::vector<T> all, double factor) {
  for (T& each : all) each = static_cast<T>(static_cast<double>(each) * factor);
  return all;
}

}  // namespace

TEMPLATE_TEST_CASE("an Adasum by name", "[coordinator][adasum]", float, double, cohort::f16,
                   cohort::bf16) {
  cohort_test::coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        using T = TestType;
        const int n = coord.size();
        const int me = coord.rank();
        for (int round = 0; round < 3; ++round) {  // cached from the second on
          for (const std::size_t count : {0, 1, 9, 5000, 100'003}) {
            CAPTURE(count, round);
            const std::string name = "w" + std::to_string(count);
            const auto expected = adasum_of_gradients<T>(n, count);
            auto data = gradient_of<T>(me, count);
            co_await coord.all_reduce(name, data, cohort::op::adasum);
            CHECK(same_bits(data, expected));
            const auto in = gradient_of<T>(me, count);
            std::vector<T> out(count);
            co_await coord.all_reduce(name + " to", in, out, cohort::op::adasum);
            CHECK(same_bits(out, expected));
            CHECK(same_bits(in, gradient_of<T>(me, count)));
            const auto back =
                co_await coord.all_reduce(name, gradient_of<T>(me, count), cohort::op::adasum);
            CHECK(same_bits(back, expected));
          }
        }
        CHECK(coord.stats().failed == 0);
      },
      cohort_test::several_pieces());
}

// As one vector they would have other coefficients: each is the sum or the average here, and
// together they are neither.
TEST_CASE("each tensor of a pack has coefficients of its own", "[coordinator][adasum]") {
  cohort_test::coordinated(
      [](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
        const int n = coord.size();
        const auto me = static_cast<std::size_t>(coord.rank());
        co_await cohort_test::meet(world);
        const auto before = coord.stats();
        std::vector<float> same(5, 2.5F);
        std::vector<float> own(7, 0.0F);
        own[me] = 3.0F;
        std::vector<float> gradient = gradient_of<float>(coord.rank(), 11);
        std::vector<float> sum(3, 1.0F);
        std::vector<double> wide = gradient_of<double>(coord.rank(), 13);
        std::vector<cohort::future<void>> all;
        all.push_back(coord.all_reduce("same", same, cohort::op::adasum, as_future));
        all.push_back(coord.all_reduce("own", own, cohort::op::adasum, as_future));
        all.push_back(coord.all_reduce("sum", sum, cohort::op::sum, as_future));
        all.push_back(coord.all_reduce("gradient", gradient, cohort::op::adasum, as_future));
        all.push_back(coord.all_reduce("wide", wide, cohort::op::adasum, as_future));
        co_await cohort::when_all(std::move(all));
        CHECK(coord.stats().packs > before.packs);
        CHECK(coord.stats().packed - before.packed >= 3);
        CHECK(same == std::vector<float>(5, 2.5F));
        std::vector<float> threes(7, 0.0F);
        std::fill_n(threes.begin(), n, 3.0F);
        CHECK(own == threes);
        CHECK(sum == std::vector<float>(3, static_cast<float>(n)));
        CHECK(same_bits(gradient, adasum_of_gradients<float>(n, 11)));
        CHECK(same_bits(wide, adasum_of_gradients<double>(n, 13)));
      });
}

// Of all sizes in another order on each rank, so that several are under way and overtake each
// other.
TEST_CASE("many Adasums by name in any order", "[coordinator][adasum]") {
  cohort_test::coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        const int n = coord.size();
        std::vector<unsigned> order;
        for (unsigned i = 0; i < 80; ++i) order.push_back(i);
        const auto count_of = [](unsigned i) {
          return i % 5 == 0 ? std::size_t{30'000} : std::size_t{3 * i};
        };
        std::mt19937 random(static_cast<unsigned>(coord.rank()));
        for (int round = 0; round < 3; ++round) {
          std::ranges::shuffle(order, random);
          std::vector<std::vector<double>> data(order.size());
          std::vector<std::vector<int>> counts(order.size());
          std::vector<cohort::future<void>> all;
          for (const unsigned i : order) {
            data[i] = gradient_of<double>(coord.rank(), count_of(i), i + 1);
            all.push_back(
                coord.all_reduce("w" + std::to_string(i), data[i], cohort::op::adasum, as_future));
            counts[i].assign(i, 1);
            all.push_back(
                coord.all_reduce("n" + std::to_string(i), counts[i], cohort::op::sum, as_future));
          }
          co_await cohort::when_all(std::move(all));
          for (const unsigned i : order) {
            CAPTURE(i);
            CHECK(same_bits(data[i], adasum_of_gradients<double>(n, count_of(i), i + 1)));
            CHECK(counts[i] == std::vector<int>(i, n));
          }
        }
      },
      cohort_test::several_pieces());
}

TEST_CASE("scale factors come before and after an Adasum", "[coordinator][adasum]") {
  cohort_test::coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        const int n = coord.size();
        for (const std::size_t count : {9, 60'000}) {
          cohort::call_options options;
          options.prescale = 0.5;
          options.postscale = 4;
          auto data = gradient_of<double>(coord.rank(), count);
          co_await coord.all_reduce("w", data, cohort::op::adasum, options);
          std::vector<std::vector<double>> all;
          for (int rank = 0; rank < n; ++rank) {
            all.push_back(scaled(gradient_of<double>(rank, count), 0.5));
          }
          CHECK(same_bits(data, scaled(adasum_of_all(all), 4)));
          const auto in = gradient_of<double>(coord.rank(), count);
          std::vector<double> out(count);
          co_await coord.all_reduce("to", in, out, cohort::op::adasum, options);
          CHECK(same_bits(out, data));
        }
      },
      cohort_test::several_pieces());
}

TEST_CASE("an Adasum of numbers that travel in 16 bits", "[coordinator][adasum]") {
  cohort_test::coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        const int n = coord.size();
        for (const std::size_t count : {9, 60'000}) {
          const auto mine = gradient_of<cohort::f16>(coord.rank(), count);
          std::vector<float> data(mine.begin(), mine.end());
          cohort::call_options options;
          options.compression = cohort::compression::f16;
          co_await coord.all_reduce("w", data, cohort::op::adasum, options);
          const auto expected = adasum_of_gradients<cohort::f16>(n, count);
          CHECK(data == std::vector<float>(expected.begin(), expected.end()));
        }
      },
      cohort_test::several_pieces());
}

TEST_CASE("the members of a bundle and of a persistent group are vectors",
          "[coordinator][adasum]") {
  cohort_test::coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        const int n = coord.size();
        const int me = coord.rank();
        std::vector<float> a;
        std::vector<double> b;
        std::vector<cohort::bf16> c;
        const auto fill = [&] {
          a.resize(9);
          b.resize(30'001);
          c.resize(700);
          std::ranges::copy(gradient_of<float>(me, a.size(), 2), a.begin());
          std::ranges::copy(gradient_of<double>(me, b.size(), 3), b.begin());
          std::ranges::copy(gradient_of<cohort::bf16>(me, c.size(), 4), c.begin());
        };
        const auto check = [&] {
          CHECK(same_bits(a, adasum_of_gradients<float>(n, a.size(), 2)));
          CHECK(same_bits(b, adasum_of_gradients<double>(n, b.size(), 3)));
          CHECK(same_bits(c, adasum_of_gradients<cohort::bf16>(n, c.size(), 4)));
        };
        const auto members = [&] {
          return cohort::bundle("model").add("a", a).add("b", b).add("c", c);
        };
        fill();
        co_await coord.grouped_all_reduce(members(), cohort::op::adasum);
        check();
        auto group = co_await coord.make_persistent(members(), cohort::op::adasum);
        for (int step = 0; step < 3; ++step) {
          fill();
          co_await group.start();
          check();
        }
        co_await group.remove();
        std::vector<int> whole(3, 1);
        const auto code = co_await cohort_test::code_of(coord.grouped_all_reduce(
            cohort::bundle("no").add("a", a).add("whole", whole), cohort::op::adasum));
        CHECK(code == cohort::errc::invalid_argument);
      },
      cohort_test::several_pieces());
}

TEST_CASE("process sets have Adasums of their own ranks", "[coordinator][adasum]") {
  cohort_test::coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        const auto set = co_await coord.add_process_set(cohort::ranks::stride(0, coord.size(), 2));
        std::vector<cohort::future<void>> all;
        auto whole = gradient_of<float>(coord.rank(), 5000);
        all.push_back(coord.all_reduce("w", whole, cohort::op::adasum, as_future));
        std::vector<float> part;
        if (set) {
          part = gradient_of<float>(set.rank(), 5000, 7);
          all.push_back(set.all_reduce("w", part, cohort::op::adasum, as_future));
        }
        co_await cohort::when_all(std::move(all));
        CHECK(same_bits(whole, adasum_of_gradients<float>(coord.size(), 5000)));
        if (set) {
          CHECK(same_bits(part, adasum_of_gradients<float>(set.size(), 5000, 7)));
          co_await set.shutdown();
        }
      },
      cohort_test::several_pieces());
}

TEST_CASE("a rank that has joined adds nothing to an Adasum", "[coordinator][adasum]") {
  cohort_test::coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        const int n = coord.size();
        if (coord.rank() != 0 || n == 1) {
          for (const std::size_t count : {9, 30'000}) {
            auto data = gradient_of<double>(coord.rank(), count);
            co_await coord.all_reduce("w" + std::to_string(count), data, cohort::op::adasum);
            std::vector<std::vector<double>> all;
            for (int rank = 0; rank < n; ++rank) all.push_back(gradient_of<double>(rank, count));
            if (n > 1) all[0].assign(count, 0.0);
            CHECK(data == adasum_of_all(all));
          }
        }
        static_cast<void>(co_await coord.join());
      },
      cohort_test::several_pieces());
}

TEST_CASE("a rank that submits a sum in place of an Adasum is named", "[coordinator][adasum]") {
  cohort_test::coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        if (coord.size() == 1) co_return;
        std::vector<float> data(3, 1.0F);
        const auto mine = [&] {
          return coord.rank() == 1 ? coord.all_reduce("w", data, cohort::op::sum)
                                   : coord.all_reduce("w", data, cohort::op::adasum);
        };
        const auto problem = co_await cohort_test::caught<cohort::mismatch_error>(mine());
        REQUIRE(problem);
        CAPTURE(problem->what());
        CHECK(problem->fields() == std::vector<std::string>{"reduction"});
        CHECK(cohort_test::has(problem->what(), "reduction differs: "));
        CHECK(cohort_test::has(problem->what(), "sum on rank 1"));
        CHECK(cohort_test::has(problem->what(), "adasum on rank"));
        co_await coord.all_reduce("w", data, cohort::op::adasum);
        CHECK(data == std::vector<float>(3, 1.0F));
      });
}
