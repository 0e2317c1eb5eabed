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
