// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Operations that travel in 16 bits. Part of the executable coordinator.plan.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <cohort/progress/when_all.hpp>

#include "coordinator/support.hpp"
#include "support/exact.hpp"

namespace {

using cohort::as_future;
using cohort::compression;
using cohort_test::caught;
using cohort_test::compressed;
using cohort_test::coordinated;
using cohort_test::exact;
using cohort_test::exact_sum;
using cohort_test::inexact;
namespace op = cohort::op;

/// What MPI has been given.
template <class Set>
std::uint64_t bytes_moved(const Set& set) {
  const cohort::coordinator_statistics done = set.stats();
  return done.by_mpi.bytes + done.by_backend.bytes;
}

/// This rank's part of what reduce_scatter reduces.
template <class T>
std::vector<T> part(const std::vector<T>& all, int rank, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const auto me = static_cast<std::size_t>(rank);
  const std::size_t more = all.size() % n;
  const std::size_t first = me * (all.size() / n) + std::min(me, more);
  const std::size_t count = all.size() / n + (me < more ? 1 : 0);
  const auto from = all.begin() + static_cast<std::ptrdiff_t>(first);
  return std::vector<T>(from, from + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

TEMPLATE_TEST_CASE("what 16 bits hold is reduced exactly", "[coordinator][compression]", float,
                   double) {
  const compression how = GENERATE(compression::f16, compression::bf16);
  // Empty, packed with others, alone, and in pieces, the last of them shorter.
  coordinated(
      [how](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        using T = TestType;
        const int n = coord.size();
        for (const std::size_t count : {0, 1, 7, 900, 5000, 100'003}) {
          const std::uint64_t before = bytes_moved(coord);
          const std::vector<T> sum = exact_sum<T>(count, n);
          std::vector<T> data = exact<T>(count, coord.rank());
          co_await coord.all_reduce("in place", data, op::sum, compressed(how));
          CHECK(data == sum);

          const std::vector<T> from = exact<T>(count, coord.rank());
          std::vector<T> to(count);
          co_await coord.all_reduce("out of place", from, to, op::average, compressed(how));
          std::vector<T> mean = sum;
          for (T& each : mean) each /= static_cast<T>(n);
          CHECK(to == mean);
          CHECK(from == exact<T>(count, coord.rank()));

          const auto back = co_await coord.all_reduce("kept", exact<T>(count, coord.rank()),
                                                      op::max, compressed(how));
          CHECK(back == exact<T>(count, n - 1));  // the numbers grow with the rank

          const int root = n - 1;
          data = exact<T>(count, coord.rank());
          co_await coord.reduce("to one", data, op::sum, root, compressed(how));
          CHECK(data == (coord.rank() == root ? sum : exact<T>(count, coord.rank())));

          const auto mine = co_await coord.reduce_scatter("parts", from, op::sum, compressed(how));
          CHECK(mine == part(sum, coord.rank(), n));
          CHECK(bytes_moved(coord) - before == 5 * count * sizeof(cohort::f16));
        }
      },
      cohort_test::several_pieces());
}

TEST_CASE("other values are rounded", "[coordinator][compression]") {
  const auto type = GENERATE(std::pair(compression::f16, 11), std::pair(compression::bf16, 8));
  coordinated([how = type.first, bits = type.second](
                  cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    // Nearer to 1 than 16 bits can tell, but for `none`.
    std::vector<float> near(3, 1.0F + std::ldexp(1.0F, -bits - 1));
    co_await coord.all_reduce("near", near, op::average, compressed(how));
    CHECK(near == std::vector<float>(3, 1.0F));
    near.assign(3, 1.0F + std::ldexp(1.0F, -bits - 1));
    co_await coord.all_reduce("near", near, op::max, compressed(compression::none));
    CHECK(near == std::vector<float>(3, 1.0F + std::ldexp(1.0F, -bits - 1)));

    inexact values(1000, coord.rank(), coord.size());
    co_await coord.all_reduce("random", values.mine, op::sum, compressed(how));
    // Each value is rounded once, and each addition once more.
    const double bound = 2 * coord.size() * std::ldexp(1.0, -bits);
    const double worst = values.worst(values.mine);
    CHECK(worst <= bound);
    CHECK(worst > 0);
  });
}

TEST_CASE("infinity and NaN travel", "[coordinator][compression]") {
  const compression how = GENERATE(compression::f16, compression::bf16);
  coordinated([how](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> data{infinity, -infinity, std::nanf(""), 1e6F, -0.0F};
    co_await coord.all_reduce("odd", data, op::max, compressed(how));
    CHECK(data[0] == infinity);
    CHECK(data[1] == -infinity);
    CHECK(std::isnan(data[2]));
    // f16 ends at 65504.
    CHECK(data[3] == (how == compression::f16 ? infinity : static_cast<float>(cohort::bf16(1e6F))));
    CHECK(data[4] == 0.0F);
    CHECK(std::signbit(data[4]));
  });
}

TEST_CASE("scale factors apply before and after the rounding", "[coordinator][compression]") {
  const bool large = GENERATE(false, true);
  coordinated(
      [large](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        const std::size_t count = large ? 20'000 : 5;
        const auto n = static_cast<float>(coord.size());
        cohort::call_options options = compressed(compression::f16);
        options.prescale = 1.0 / 1024;
        options.postscale = 1024;
        // Too large for f16 without the factor.
        std::vector<float> data(count, 1024.0F * 1024.0F);
        co_await coord.all_reduce("before", data, op::sum, options);
        CHECK(data == std::vector<float>(count, 1024.0F * 1024.0F * n));
        data.assign(count, 1024.0F * 1024.0F);
        co_await coord.all_reduce("average", data, op::average, options);
        CHECK(data == std::vector<float>(count, 1024.0F * 1024.0F));
        // f16 has no number near the result.
        options.prescale = 1;
        options.postscale = 1.0 / 3;
        data.assign(count, 1.0F);
        co_await coord.all_reduce("after", data, op::sum, options);
        CHECK(data == std::vector<float>(count, n * static_cast<float>(1.0 / 3)));
        std::vector<double> exact_third(count, 1.0);
        const auto part = co_await coord.reduce_scatter("part", exact_third, op::max, options);
        CHECK(std::count(part.begin(), part.end(), 1.0 / 3) == static_cast<long>(part.size()));
        options.prescale = 2;
        co_await coord.reduce("root", exact_third, op::max, 0, options);
        CHECK(exact_third == std::vector<double>(count, coord.rank() == 0 ? 2.0 / 3 : 1.0));
      },
      cohort_test::several_pieces());
}

TEST_CASE("compressed tensors share packs with those of the type they travel in",
          "[coordinator][compression]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    for (int round = 0; round < 3; ++round) {
      co_await cohort_test::meet(world);
      const auto before = coord.stats();
      std::vector<std::vector<float>> some;
      std::vector<cohort::future<void>> all;
      for (std::size_t i = 0; i < 9; ++i) some.push_back(exact<float>(3 + i, coord.rank()));
      for (std::size_t i = 0; i < 9; ++i) {
        all.push_back(coord.all_reduce("some " + std::to_string(i), some[i], op::sum,
                                       compressed(compression::bf16), as_future));
      }
      std::vector<double> wide = exact<double>(5, coord.rank());
      all.push_back(
          coord.all_reduce("wide", wide, op::sum, compressed(compression::bf16), as_future));
      std::vector<cohort::bf16> native(11, cohort::bf16(1.0F));
      all.push_back(coord.all_reduce("native", native, op::sum, as_future));
      co_await cohort::when_all(std::move(all));
      CHECK(coord.stats().packs - before.packs == 1);
      CHECK(coord.stats().packed - before.packed == 11);
      for (std::size_t i = 0; i < 9; ++i) CHECK(some[i] == exact_sum<float>(3 + i, n));
      CHECK(wide == exact_sum<double>(5, n));
      for (const cohort::bf16 each : native) CHECK(each == static_cast<float>(n));
    }
  });
}

TEST_CASE("the members of a bundle that can be are compressed", "[coordinator][compression]") {
  coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        const int n = coord.size();
        const int me = coord.rank();
        struct {
          std::vector<std::int64_t> whole;
          std::vector<float> small;
          std::vector<double> large;
          std::vector<cohort::bf16> native;
          std::vector<long double> exact_third;
        } data;
        const auto fill = [&] {
          data.whole.assign(5, 1'000'001 + me);  // 16 bits do not hold it
          data.small = exact<float>(9, me);
          data.large = exact<double>(30'001, me);
          data.native.assign(10'000, cohort::bf16(2.0F));
          data.exact_third.assign(3, 1.0L / 3);
        };
        const auto members = [&] {
          return cohort::bundle("bundle")
              .add("whole", data.whole)
              .add("small x2; 1:a", data.small)
              .add("large", data.large)
              .add("native", data.native)
              .add("third", data.exact_third);
        };
        const std::int64_t whole = std::int64_t{1'000'001} * n + n * (n - 1) / 2;

        fill();
        const std::uint64_t before = bytes_moved(coord);
        co_await coord.grouped_all_reduce(members(), op::sum, compressed(compression::bf16));
        CHECK(bytes_moved(coord) - before < data.large.size() * sizeof(double) / 2);
        CHECK(data.whole == std::vector<std::int64_t>(5, whole));
        CHECK(data.small == exact_sum<float>(9, n));
        CHECK(data.large == exact_sum<double>(30'001, n));
        CHECK(static_cast<float>(data.native.back()) == static_cast<float>(2 * n));
        CHECK(data.exact_third[0] == Approx(static_cast<double>(n) / 3).epsilon(1e-15));

        fill();
        co_await coord.grouped_reduce(members(), op::sum, n - 1, compressed(compression::bf16));
        const bool root = me == n - 1;
        CHECK(data.whole == std::vector<std::int64_t>(5, root ? whole : 1'000'001 + me));
        CHECK(data.small == (root ? exact_sum<float>(9, n) : exact<float>(9, me)));
        CHECK(data.large == (root ? exact_sum<double>(30'001, n) : exact<double>(30'001, me)));

        fill();
        const auto parts = co_await coord.grouped_reduce_scatter(members(), op::sum,
                                                                 compressed(compression::bf16));
        CHECK(parts.get<std::int64_t>("whole") == part(std::vector<std::int64_t>(5, whole), me, n));
        CHECK(parts.get<float>("small x2; 1:a") == part(exact_sum<float>(9, n), me, n));
        CHECK(parts.get<double>("large") == part(exact_sum<double>(30'001, n), me, n));

        // With factors, for which what is not compressed is copied too.
        cohort::call_options scaled = compressed(compression::f16);
        scaled.prescale = 0.5;
        scaled.postscale = 4;
        std::vector<float> a = exact<float>(9, me);
        std::vector<long double> b(3, 1.0L);
        const auto pair = [&] { return cohort::bundle("pair").add("a", a).add("b", b); };
        std::vector<float> twice = exact_sum<float>(9, n);
        for (float& each : twice) each *= 2;
        const std::vector<long double> two(3, 2.0L * n);
        const auto scattered = co_await coord.grouped_reduce_scatter(pair(), op::sum, scaled);
        CHECK(scattered.get<float>("a") == part(twice, me, n));
        CHECK(scattered.get<long double>("b") == part(two, me, n));
        co_await coord.grouped_reduce(pair(), op::sum, 0, scaled);
        CHECK(a == (me == 0 ? twice : exact<float>(9, me)));
        CHECK(b == (me == 0 ? two : std::vector<long double>(3, 1.0L)));
        a = exact<float>(9, me);
        b.assign(3, 1.0L);
        co_await coord.grouped_all_reduce(pair(), op::sum, scaled);
        CHECK(a == twice);
        CHECK(b == two);
      },
      cohort_test::several_pieces());
}

TEST_CASE("a rank that has joined brings neutral elements of 16 bits",
          "[coordinator][compression]") {
  const bool divide_by_active = GENERATE(false, true);
  cohort::coordinator_options options = cohort_test::several_pieces();
  options.divide_by_active = divide_by_active;
  coordinated(
      [=](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        const int n = coord.size();
        for (int step = 0; step <= coord.rank(); ++step) {
          const auto active = static_cast<float>(n - step);
          for (const std::size_t count : {5, 900, 30'001}) {
            const auto each = static_cast<float>(coord.rank() + 1);
            std::vector<float> data(count, 4.0F);
            co_await coord.all_reduce("average", data, op::average, compressed(compression::bf16));
            CHECK(data == std::vector<float>(
                              count, 4.0F * active / (divide_by_active ? active : float(n))));
            data.assign(count, each);
            co_await coord.all_reduce("least", data, op::min, compressed(compression::f16));
            CHECK(data == std::vector<float>(count, static_cast<float>(step + 1)));
            const std::vector<double> from(count, 2.0);
            const auto mine = co_await coord.reduce_scatter("parts", from, op::product,
                                                            compressed(compression::f16));
            const double product = std::pow(2.0, n - step);
            CHECK(mine == part(std::vector<double>(count, product), coord.rank(), n));
            std::vector<double> a(count, 1.0);
            std::vector<int> b(3, 70'001);
            std::vector<cohort::f16> c(count, cohort::f16(1.0F));
            co_await coord.grouped_all_reduce(
                cohort::bundle("bundle").add("a", a).add("b", b).add("c", c), op::sum,
                compressed(compression::f16));
            CHECK(a == std::vector<double>(count, active));
            CHECK(b == std::vector<int>(3, 70'001 * (n - step)));
            CHECK(static_cast<float>(c.back()) == active);
            co_await coord.reduce("root", a, op::max, n - 1, compressed(compression::f16));
          }
        }
        co_await coord.join();
      },
      options);
}

TEST_CASE("process sets and persistent groups are compressed", "[coordinator][compression]") {
  coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        auto set = co_await coord.add_process_set(cohort::ranks::stride(0, coord.size(), 2));
        if (set) {
          for (const std::size_t count : {9, 30'001}) {
            std::vector<float> data = exact<float>(count, set.rank());
            const std::uint64_t before = bytes_moved(set);
            co_await set.all_reduce("w", data, op::sum, compressed(compression::bf16));
            CHECK(data == exact_sum<float>(count, set.size()));
            CHECK(bytes_moved(set) - before == count * sizeof(cohort::bf16));
          }
          co_await set.shutdown();
        }
        std::vector<float> w(9);
        std::vector<double> v(30'001);
        std::vector<int> k(3);
        auto group = co_await coord.make_persistent(
            cohort::bundle("model").add("w", w).add("v", v).add("k", k), op::sum,
            compressed(compression::bf16));
        for (int step = 0; step < 3; ++step) {
          std::ranges::copy(exact<float>(w.size(), coord.rank()), w.begin());
          std::ranges::copy(exact<double>(v.size(), coord.rank()), v.begin());
          std::ranges::fill(k, 70'001);
          const std::uint64_t before = bytes_moved(coord);
          co_await group.start();
          CHECK(bytes_moved(coord) - before < v.size() * sizeof(double) / 2);
          CHECK(w == exact_sum<float>(9, coord.size()));
          CHECK(v == exact_sum<double>(30'001, coord.size()));
          CHECK(k == std::vector<int>(3, 70'001 * coord.size()));
        }
        co_await group.remove();
      },
      cohort_test::several_pieces());
}

TEST_CASE("what cannot be compressed is refused by name", "[coordinator][compression]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const cohort::call_options options = compressed(compression::bf16);
    const auto refused = [](asio::awaitable<void> work,
                            std::string_view text) -> asio::awaitable<void> {
      const auto problem = co_await caught<std::system_error>(std::move(work));
      REQUIRE(problem);
      CHECK(problem->code() == cohort::errc::invalid_argument);
      CAPTURE(problem->what(), text);
      CHECK(cohort_test::has(problem->what(), text));
    };
    std::vector<int> whole(3, 1);
    std::vector<float> data(3, 1.0F);
    std::vector<cohort::f16> half(3, cohort::f16(1.0F));
    std::vector<long double> wide(3, 1.0L);
    co_await refused(coord.all_reduce("a", whole, op::sum, options),
                     "all_reduce 'a': compression needs elements of float or double, not int32");
    co_await refused(coord.all_reduce("a", half, op::sum, options), "not float16");
    co_await refused(coord.reduce("a", wide, op::sum, 0, options),
                     "reduce 'a': compression needs elements of float or double, not long double");
    co_await refused(coord.grouped_all_reduce(cohort::bundle("b").add("i", whole).add("h", half),
                                              op::sum, options),
                     "all_reduce 'b': compression needs elements of float or double");
    const cohort::user_op own{[](float a, float b) { return a * b; }, cohort::commutative};
    co_await refused(coord.all_reduce("c", data, own, options),
                     "all_reduce 'c': compression is not defined for user operation");
    co_await refused(coord.broadcast("d", data, 0, options),
                     "broadcast 'd': compression is for all_reduce, reduce and reduce_scatter");
    const auto gathers = [&]() -> asio::awaitable<void> {
      co_await coord.all_gather("e", data, options);
    };
    co_await refused(gathers(), "all_gather 'e': compression is for");
    const auto makes = [&]() -> asio::awaitable<void> {
      co_await coord.make_persistent(cohort::bundle("f").add("i", whole), op::sum, options);
    };
    co_await refused(makes(), "'f': compression needs elements of float or double, not int32");
    // And the names are usable again.
    co_await coord.all_reduce("a", data, op::sum, options);
    CHECK(data == std::vector<float>(3, static_cast<float>(coord.size())));
  });
}

TEST_CASE("a rank that compresses alone is named", "[coordinator][compression]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    if (coord.size() == 1) co_return;
    const bool alone = coord.rank() == 1;
    std::vector<float> data(3, 1.0F);
    const auto problem = co_await caught<cohort::mismatch_error>(coord.all_reduce(
        "w", data, op::sum, compressed(alone ? compression::bf16 : compression::none)));
    REQUIRE(problem);
    CAPTURE(problem->what());
    CHECK(problem->fields() == std::vector<std::string>{"type", "element size", "compression"});
    CHECK(cohort_test::has(problem->what(), "compression differs: "));
    CHECK(cohort_test::has(problem->what(), "16 bit on rank 1"));
    // A number of 16 bits that nobody has compressed is another thing.
    std::vector<cohort::bf16> native(3, cohort::bf16(1.0F));
    const auto mine = [&] {
      return alone ? coord.all_reduce("v", data, op::sum, compressed(compression::bf16))
                   : coord.all_reduce("v", native, op::sum, compressed(compression::none));
    };
    const auto other = co_await caught<cohort::mismatch_error>(mine());
    REQUIRE(other);
    CHECK(other->fields() == std::vector<std::string>{"compression"});
    // What travels is the same here, whatever it is made from.
    std::vector<double> wide(3, 1.0);
    if (alone) {
      co_await coord.all_reduce("u", wide, op::sum, compressed(compression::bf16));
      CHECK(wide == std::vector<double>(3, coord.size()));
    } else {
      co_await coord.all_reduce("u", data, op::sum, compressed(compression::bf16));
      CHECK(data == std::vector<float>(3, static_cast<float>(coord.size())));
    }
  });
}
