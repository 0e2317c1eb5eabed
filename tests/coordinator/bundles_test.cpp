// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Bundles that are gathered, and reductions of one's own on whole vectors. Part of the executable
// coordinator.verbs.
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "coordinator/support.hpp"

namespace {

using cohort_test::caught;
using cohort_test::coordinated;

/// A vector as one element, so that an operation sees all of it.
struct gradient {
  std::array<double, 6> g{};
  friend bool operator==(const gradient&, const gradient&) = default;
};

/// Adds what is orthogonal and averages what is parallel, as Adasum does.
struct adaptive {
  gradient operator()(const gradient& a, const gradient& b) const {
    const auto dot = [](const gradient& x, const gradient& y) {
      return std::inner_product(x.g.begin(), x.g.end(), y.g.begin(), 0.0);
    };
    const double aa = dot(a, a);
    const double bb = dot(b, b);
    const double ab = dot(a, b);
    const double of_a = aa == 0 ? 1 : 1 - ab / (2 * aa);
    const double of_b = bb == 0 ? 1 : 1 - ab / (2 * bb);
    gradient sum;
    for (std::size_t i = 0; i < sum.g.size(); ++i) sum.g[i] = of_a * a.g[i] + of_b * b.g[i];
    return sum;
  }
};
constexpr cohort::user_op adaptive_sum{adaptive(), cohort::commutative};

}  // namespace

// Both results are the same however the ranks are paired, so any number of ranks will do.
TEST_CASE("an adaptive sum by a reduction of one's own", "[coordinator]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const auto me = static_cast<std::size_t>(coord.rank());
    std::vector<gradient> data(3);
    data[0].g.fill(2.5);                 // the same on all ranks
    data[1].g[me] = 1.0 + coord.rank();  // orthogonal
    if (me == 0) data[2].g.fill(4);      // nothing from the others
    co_await coord.all_reduce("gradients", data, adaptive_sum);
    gradient same;
    same.g.fill(2.5);
    CHECK(data[0] == same);
    gradient sum;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(coord.size()); ++rank) {
      sum.g[rank] = 1.0 + static_cast<double>(rank);
    }
    CHECK(data[1] == sum);
    gradient of_first;
    of_first.g.fill(4);
    CHECK(data[2] == of_first);
    // Between parallel and orthogonal, and not what a sum gives.
    gradient one;
    one.g[0] = 1;
    one.g[1] = coord.rank() == 0 ? 1 : 0;
    if (me > 1) one = gradient();
    co_await coord.all_reduce("two", one, adaptive_sum);
    if (coord.size() > 1) {
      CHECK(one.g[0] == Approx(0.75 + 0.5));
      CHECK(one.g[1] == Approx(0.75));
    }
  });
}

TEST_CASE("bundles are reduced to a root", "[coordinator]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    for (int root = 0; root < n; ++root) {
      std::vector<float> a(3, static_cast<float>(coord.rank() + 1));
      std::vector<double> b(70'001, coord.rank() + 1.0);
      std::vector<float> none;
      cohort::call_options options;
      if (root % 2 == 1) options.prescale = 0.5;
      if (root % 2 == 1) options.postscale = 4;
      const double factor = root % 2 == 1 ? 2 : 1;
      co_await coord.grouped_reduce(cohort::bundle("it").add("a", a).add("none", none).add("b", b),
                                    cohort::op::average, root, options);
      const bool is_root = coord.rank() == root;
      const double expected = is_root ? factor * (n + 1) / 2.0 : coord.rank() + 1;
      CHECK(a == std::vector<float>(3, static_cast<float>(expected)));
      CHECK(b == std::vector<double>(70'001, expected));
    }
    std::vector<int> whole(2, coord.rank());
    std::vector<int> other(1, 1);
    co_await coord.grouped_reduce(cohort::bundle("max").add("a", whole).add("b", other),
                                  cohort::op::max, 0);
    CHECK(whole == std::vector<int>(2, coord.rank() == 0 ? n - 1 : coord.rank()));
    const auto code = co_await cohort_test::code_of(
        coord.grouped_reduce(cohort::bundle("no").add("a", whole), cohort::op::sum, n));
    CHECK(code == cohort::errc::bad_root);
  });
}

TEST_CASE("a rank that has joined brings neutral elements to a bundle's root", "[coordinator]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    if (coord.rank() != 0 || n == 1) {
      std::vector<int> a(2, 3);
      std::vector<double> b(5, 1.5);
      co_await coord.grouped_reduce(cohort::bundle("it").add("a", a).add("b", b), cohort::op::sum,
                                    n - 1);
      const int bring = n == 1 ? 1 : n - 1;
      const bool is_root = coord.rank() == n - 1;
      CHECK(a == std::vector<int>(2, is_root ? 3 * bring : 3));
      CHECK(b == std::vector<double>(5, is_root ? 1.5 * bring : 1.5));
    }
    static_cast<void>(co_await coord.join());
  });
}

TEST_CASE("bundles are gathered, with sizes that differ", "[coordinator]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    const int me = coord.rank();
    for (int round = 0; round < 4; ++round) {
      std::vector<double> a(static_cast<std::size_t>(me + round), me + 0.5);
      std::vector<std::int8_t> b(3, static_cast<std::int8_t>(me));
      std::vector<int> none;
      const auto all = co_await coord.grouped_all_gather(
          cohort::bundle("rows").add("a", a).add("b", b).add("none", none));
      std::vector<double> expected_a;
      std::vector<std::int8_t> expected_b;
      std::vector<std::size_t> counts;
      for (int rank = 0; rank < n; ++rank) {
        counts.push_back(static_cast<std::size_t>(rank + round));
        expected_a.insert(expected_a.end(), counts.back(), rank + 0.5);
        expected_b.insert(expected_b.end(), 3, static_cast<std::int8_t>(rank));
      }
      CHECK(all.get<double>("a") == expected_a);
      CHECK(all.get<std::int8_t>("b") == expected_b);
      CHECK(all.get<int>("none").empty());
      CHECK(all.counts("a") == counts);
      CHECK(all.counts("none") == std::vector<std::size_t>(static_cast<std::size_t>(n), 0));
      CHECK_THROWS_AS(all.get<float>("a"), cohort::error);
      CHECK_THROWS_AS(all.counts("c"), cohort::error);
    }
  });
}

TEST_CASE("a gathered bundle with other members is a mismatch", "[coordinator]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    std::vector<float> a(2, 1.0F);
    if (coord.size() > 1) {
      const char* member = coord.rank() == 0 ? "a" : "b";
      const auto problem = co_await caught<cohort::mismatch_error>(
          coord.grouped_all_gather(cohort::bundle("it").add(member, a)));
      REQUIRE(problem);
      CHECK(problem->fields() == std::vector<std::string>{"group members"});
    }
    const auto again = co_await coord.grouped_all_gather(cohort::bundle("it").add("a", a));
    CHECK(again.get<float>("a").size() == 2 * static_cast<std::size_t>(coord.size()));
    const auto code = co_await cohort_test::code_of(coord.grouped_all_gather(cohort::bundle("no")));
    CHECK(code == cohort::errc::invalid_argument);
  });
}

TEST_CASE("a rank that has joined brings nothing to a gathered bundle", "[coordinator]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    if (coord.rank() != 0 || n == 1) {
      std::vector<int> a(2, coord.rank());
      const auto all = co_await coord.grouped_all_gather(cohort::bundle("it").add("a", a));
      std::vector<std::size_t> counts(static_cast<std::size_t>(n), 2);
      if (n > 1) counts.front() = 0;
      CHECK(all.counts("a") == counts);
    }
    static_cast<void>(co_await coord.join());
  });
}

TEST_CASE("bundles are gathered, scattered and exchanged, all members or none", "[coordinator]") {
  cohort_test::coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        const int n = coord.size();
        const int me = coord.rank();
        for (int root = 0; root < n; ++root) {
          std::vector<int> a{me, 10 + me};
          std::vector<double> b(3, me + 0.5);
          std::vector<float> none;
          const auto all = co_await coord.grouped_gather(
              cohort::bundle("g").add("a", a).add("none", none).add("b", b), root);
          if (me == root) {
            std::vector<int> expected;
            for (int rank = 0; rank < n; ++rank) expected.insert(expected.end(), {rank, 10 + rank});
            CHECK(all.get<int>("a") == expected);
            CHECK(all.get<double>("b").size() == 3 * std::size_t(n));
            CHECK(all.get<double>("b").back() == n - 0.5);
            CHECK(all.get<float>("none").empty());
            CHECK(all.counts("a") == std::vector<std::size_t>(std::size_t(n), 2));
          } else {
            CHECK(all.get<int>("a").empty());
          }

          std::vector<int> whole;
          std::vector<double> halves;
          for (int rank = 0; me == root && rank < n; ++rank) {
            whole.insert(whole.end(), {rank, -rank});
            halves.push_back(rank / 2.0);
          }
          std::vector<int> part(2, 99);
          std::vector<double> half(1, 99);
          co_await coord.grouped_scatter(cohort::bundle("s").add("x", whole).add("y", halves),
                                         cohort::bundle("s").add("x", part).add("y", half), root);
          CHECK(part == std::vector<int>{me, -me});
          CHECK(half[0] == me / 2.0);
        }
        std::vector<int> blocks;
        std::vector<std::uint8_t> small;
        for (int rank = 0; rank < n; ++rank) {
          blocks.insert(blocks.end(), {100 * me + rank, -1});
          small.push_back(static_cast<std::uint8_t>(16 * me + rank));
        }
        const auto come =
            co_await coord.grouped_all_to_all(cohort::bundle("x").add("i", blocks).add("s", small));
        for (int rank = 0; rank < n; ++rank) {
          CHECK(come.get<int>("i")[2 * std::size_t(rank)] == 100 * rank + me);
          CHECK(come.get<std::uint8_t>("s")[std::size_t(rank)] == 16 * rank + me);
        }
      });
}

TEST_CASE("bundles are reduced and scattered, in parts of one size and of two", "[coordinator]") {
  cohort_test::coordinated([](cohort::communicator,
                              cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    for (const std::size_t count : {std::size_t(n) * 5, std::size_t(n) * 5 + 1, std::size_t(1)}) {
      std::vector<float> a(count);
      std::vector<long long> b(7, coord.rank());
      for (std::size_t i = 0; i < count; ++i) a[i] = float(i) + float(coord.rank());
      cohort::call_options scaled;
      scaled.postscale = count == 1 ? 2.0 : 1.0;
      cohort::bundle both("rs");
      both.add("a", a);
      if (count != 1) both.add("b", b);  // integers cannot be scaled
      const auto mine = co_await coord.grouped_reduce_scatter(both, cohort::op::sum, scaled);
      std::size_t begin = 0;
      const auto part = [&](std::size_t of, int rank) {
        return of / std::size_t(n) + (std::size_t(rank) < of % std::size_t(n) ? 1 : 0);
      };
      for (int rank = 0; rank < coord.rank(); ++rank) begin += part(count, rank);
      const auto got = mine.get<float>("a");
      REQUIRE(got.size() == part(count, coord.rank()));
      for (std::size_t i = 0; i < got.size(); ++i) {
        const float sum = float(n) * float(begin + i) + float(n * (n - 1)) / 2;
        CHECK(got[i] == sum * float(scaled.postscale));
      }
      if (count != 1) {
        const auto ids = mine.get<long long>("b");
        CHECK(ids == std::vector<long long>(part(7, coord.rank()), n * (n - 1) / 2));
      }
    }
  });
}

TEST_CASE("bundles that cannot be cut or differ are told of by name", "[coordinator]") {
  cohort_test::coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        const int n = coord.size();
        if (n == 1) co_return;
        std::vector<int> odd(std::size_t(n) + 1);
        auto code = co_await cohort_test::code_of(
            coord.grouped_all_to_all(cohort::bundle("odd").add("a", odd)));
        CHECK(code == cohort::errc::size_mismatch);
        const auto empty = cohort::bundle("no");
        code = co_await cohort_test::code_of(coord.grouped_gather(empty, 0));
        CHECK(code == cohort::errc::invalid_argument);
        std::vector<int> some(coord.rank() == 0 ? 3 : 4);
        const auto differ = co_await cohort_test::caught<cohort::mismatch_error>(
            coord.grouped_gather(cohort::bundle("differ").add("a", some), 0));
        if (differ) CHECK(cohort_test::has(differ->what(), "1:a int32 x3"));
        // The next one of the name works.
        some.assign(2, 1);
        const auto all = co_await coord.grouped_gather(cohort::bundle("differ").add("a", some), 0);
        if (coord.rank() == 0) CHECK(all.get<int>("a").size() == 2 * std::size_t(n));
      });
}
