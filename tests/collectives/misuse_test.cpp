// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Arguments that cannot be right: each verb says so before any MPI call, and names the values.

#include <cohort/collectives.hpp>
#include <cohort/core/log.hpp>
#include <cohort/mpi/topology.hpp>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/support.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using namespace collectives_test;
using cohort::communicator;
using cohort::errc;
using cohort_test::code_of;
using cohort_test::on_world;
namespace op = cohort::op;

/// Wrong calls on a communicator of this rank's own alone: nobody else is left waiting.
class wrong_calls {
 public:
  explicit wrong_calls(communicator world) : world_(std::move(world)) {}

  template <class T>
  task expect(asio::awaitable<T> call, errc code, std::string verb, std::string value) {
    const cohort::log::capture logged;
    const std::error_code got = co_await code_of(std::move(call));
    INFO(verb);
    CHECK(got == code);
    const cohort::failure last = world_.last_failure();
    CHECK(last.code == code);
    const std::string rank = "rank " + std::to_string(world_.rank()) + ": ";
    CHECK_THAT(last.text, Catch::Matchers::ContainsSubstring(rank + verb + " #"));
    CHECK_THAT(last.text, Catch::Matchers::ContainsSubstring(value));
    CHECK(logged.contains(last.text));
  }

 private:
  communicator world_;
};

template <class T>
task expect(asio::awaitable<T> call, std::error_code expected) {
  const std::error_code got = co_await code_of(std::move(call));
  CHECK(got == expected);
}

}  // namespace

TEST_CASE("a root that is no rank is bad_root") {
  on_world([](communicator world) -> task {
    wrong_calls wrong(world);
    std::vector<double> in(1);
    std::vector<double> out(static_cast<std::size_t>(world.size()));
    const std::vector<int> counts(out.size(), 1);
    const int high = world.size();
    const std::string value = "root=" + std::to_string(high);
    co_await wrong.expect(cohort::broadcast(world, in, high), errc::bad_root, "broadcast", value);
    co_await wrong.expect(cohort::broadcast(world, in, -1), errc::bad_root, "broadcast", "root=-1");
    co_await wrong.expect(cohort::broadcast(world, in, 1L << 40), errc::bad_root, "broadcast",
                          "root=-1");
    co_await wrong.expect(cohort::reduce(world, in, in, op::sum, high), errc::bad_root, "reduce",
                          value);
    co_await wrong.expect(cohort::reduce(world, in, op::sum, -2), errc::bad_root, "reduce",
                          "root=-2");
    co_await wrong.expect(cohort::gather(world, in, out, high), errc::bad_root, "gather", value);
    co_await wrong.expect(cohort::gather(world, in, high), errc::bad_root, "gather", value);
    co_await wrong.expect(cohort::gather_v(world, in, out, counts, high), errc::bad_root,
                          "gather_v", value);
    co_await wrong.expect(cohort::scatter(world, out, in, high), errc::bad_root, "scatter", value);
    co_await wrong.expect(cohort::scatter_v(world, out, in, counts, -1), errc::bad_root,
                          "scatter_v", "root=-1");
  });
}

TEST_CASE("buffer sizes that cannot be right are size_mismatch") {
  on_world([](communicator world) -> task {
    wrong_calls wrong(world);
    const auto ranks = static_cast<std::size_t>(world.size());
    const int here = world.rank();
    std::vector<int> two(2);
    std::vector<int> three(3);
    std::vector<int> long_one(2 * ranks + 1);
    constexpr errc code = errc::size_mismatch;
    co_await wrong.expect(cohort::all_reduce(world, two, three, op::sum), code, "all_reduce",
                          "in.count=2, out.count=3");
    co_await wrong.expect(cohort::reduce(world, two, three, op::sum, here), code, "reduce",
                          "in.count=2, out.count=3");
    co_await wrong.expect(cohort::scan(world, two, three, op::sum), code, "scan", "out.count=3");
    co_await wrong.expect(cohort::exclusive_scan(world, two, three, op::sum), code,
                          "exclusive_scan", "out.count=3");
    const std::string long_count = "count=" + std::to_string(long_one.size());
    co_await wrong.expect(cohort::all_gather(world, two, long_one), code, "all_gather", long_count);
    co_await wrong.expect(cohort::gather(world, two, long_one, here), code, "gather", long_count);
    co_await wrong.expect(cohort::scatter(world, long_one, two, here), code, "scatter", long_count);
    co_await wrong.expect(cohort::reduce_scatter(world, long_one, two, op::sum), code,
                          "reduce_scatter", long_count);
    co_await wrong.expect(cohort::all_to_all(world, two, long_one), code, "all_to_all", long_count);
    if (ranks > 1) {
      co_await wrong.expect(cohort::all_gather(world, long_one), code, "all_gather", long_count);
      co_await wrong.expect(cohort::gather(world, long_one, here), code, "gather", long_count);
      co_await wrong.expect(cohort::scatter(world, long_one, here), code, "scatter", long_count);
      co_await wrong.expect(cohort::all_to_all(world, long_one), code, "all_to_all", long_count);
      co_await wrong.expect(cohort::reduce_scatter(world, long_one, op::sum), code,
                            "reduce_scatter", long_count);
    }
  });
}

TEST_CASE("counts and displacements that do not fit the buffers are size_mismatch") {
  on_world([](communicator world) -> task {
    wrong_calls wrong(world);
    const auto ranks = static_cast<std::size_t>(world.size());
    const int here = world.rank();
    std::vector<int> one(1);
    std::vector<int> all(ranks);
    const std::vector<int> ones(ranks, 1);
    const std::vector<int> twos(ranks, 2);
    const std::vector<int> too_many(ranks + 1, 1);
    std::vector<int> negative = ones;
    negative.back() = -1;
    std::vector<std::size_t> far(ranks, 0);
    far.back() = ranks;
    constexpr errc code = errc::size_mismatch;
    const std::string blocks = "out.blocks=" + std::to_string(ranks + 1);
    co_await wrong.expect(cohort::all_gather_v(world, one, all, too_many), code, "all_gather_v",
                          blocks);
    co_await wrong.expect(cohort::all_gather_v(world, one, too_many), code, "all_gather_v", blocks);
    co_await wrong.expect(cohort::all_gather_v(world, one, all, twos), code, "all_gather_v",
                          "out.blocks.total=" + std::to_string(2 * ranks));
    co_await wrong.expect(cohort::all_gather_v(world, one, all, negative), code, "all_gather_v",
                          "in.count=1");
    co_await wrong.expect(cohort::all_gather_v(world, one, negative), code, "all_gather_v",
                          "in.count=1");
    co_await wrong.expect(cohort::all_gather_v(world, one, twos), code, "all_gather_v",
                          "in.count=1");
    co_await wrong.expect(cohort::all_gather_v(world, one, all, cohort::block_list(ones, far)),
                          code, "all_gather_v", "in.count=1");
    co_await wrong.expect(cohort::gather_v(world, one, all, too_many, here), code, "gather_v",
                          blocks);
    co_await wrong.expect(cohort::scatter_v(world, all, one, twos, here), code, "scatter_v",
                          "in.blocks.total=" + std::to_string(2 * ranks));
    co_await wrong.expect(cohort::all_to_all_v(world, all, ones, all, too_many), code,
                          "all_to_all_v", blocks);
    co_await wrong.expect(cohort::all_to_all_v(world, all, twos), code, "all_to_all_v", "count=");
    co_await wrong.expect(cohort::reduce_scatter_v(world, all, one, too_many, op::sum), code,
                          "reduce_scatter_v", "blocks=" + std::to_string(ranks + 1));
    co_await wrong.expect(cohort::reduce_scatter_v(world, all, twos, op::sum), code,
                          "reduce_scatter_v", "blocks.total=" + std::to_string(2 * ranks));
  });
}

TEST_CASE("what MPI finds in unequal counts says which operation it was, and with what") {
  const cohort::communicator_options options{.backend = cohort::backend_choice::mpi};
  on_world(
      [](communicator world) -> task {
        const cohort::log::capture logged;
        const bool root = world.rank() == 0;
        std::vector<int> values(root ? 3 : 2);
        std::string what;
        std::error_code code;
        try {
          co_await cohort::broadcast(world, values, 0);
        } catch (const std::system_error& failed) {
          code = failed.code();
          what = failed.what();
        }
        if (root) co_return;
        // MPI_ERR_TRUNCATE with Open MPI, MPI_ERR_OTHER with MPICH.
        CHECK(code.category() == cohort::mpi::mpi_category());
        CHECK(what == world.last_failure().text);
        const std::string rank = "rank " + std::to_string(world.rank()) + ": ";
        CHECK_THAT(what, Catch::Matchers::ContainsSubstring(rank + "broadcast #"));
        CHECK_THAT(what, Catch::Matchers::ContainsSubstring("count=2"));
        CHECK_THAT(what, Catch::Matchers::ContainsSubstring("root=0"));
      },
      options);
}

TEST_CASE("a verb on an empty handle completes with invalid_communicator") {
  on_world([](communicator) -> task {
    const communicator nobody;
    std::vector<int> data(1);
    auto [first] = co_await cohort::barrier(nobody, cohort::as_tuple);
    CHECK(first == errc::invalid_communicator);
    auto [second] = co_await cohort::gather(nobody, data, data, 0, cohort::as_tuple);
    CHECK(second == errc::invalid_communicator);
    auto [third] = co_await cohort::scan(nobody, data, op::sum, cohort::as_tuple);
    CHECK(third == errc::invalid_communicator);
    auto [fourth] = co_await cohort::neighbor_all_gather(nobody, data, data, cohort::as_tuple);
    CHECK(fourth == errc::invalid_communicator);
  });
}

TEST_CASE("cross_rank checks find what one rank alone cannot see") {
  const cohort::communicator_options options{.checks = cohort::checks::cross_rank};
  on_world(
      [](communicator world) -> task {
        const cohort::log::capture logged;
        std::vector<int> data(world.rank() == 0 ? 3U : 4U);
        std::vector<int> all(data.size() * static_cast<std::size_t>(world.size()));
        const int root = world.rank() == 0 ? 0 : world.size() - 1;
        const bool alone = world.size() == 1;
        const auto wrong = alone ? errc{} : errc::cross_rank_mismatch;
        const std::error_code expected = alone ? std::error_code() : make_error_code(wrong);
        co_await expect(cohort::broadcast(world, data, 0), expected);
        co_await expect(cohort::reduce(world, data, op::sum, 0), expected);
        co_await expect(cohort::scan(world, data, op::sum), expected);
        co_await expect(cohort::all_gather(world, data, all), expected);
        co_await expect(cohort::gather(world, data, all, 0), expected);
        co_await expect(cohort::scatter(world, all, data, 0), expected);
        co_await expect(cohort::reduce_scatter(world, all, data, op::sum), expected);
        std::vector<int> parts(all.size());  // MPICH refuses one buffer on both sides
        co_await expect(cohort::all_to_all(world, all, parts), expected);
        std::vector<int> same(2);
        co_await expect(cohort::broadcast(world, same, root), expected);
        // What is right goes through, whoever is root, whatever side a rank leaves empty.
        std::vector<int> none;
        std::vector<int> result(2 * static_cast<std::size_t>(world.size()));
        co_await cohort::gather(world, same, world.rank() == 0 ? result : none, 0);
        co_await cohort::scatter(world, world.rank() == 0 ? result : none, same, 0);
        co_await cohort::reduce(world, same, op::sum, 0);
        co_await cohort::barrier(world);
        const std::vector<int> counts(static_cast<std::size_t>(world.size()), 2);
        co_await cohort::all_gather_v(world, same, result, counts);
        co_await cohort::gather_v(world, same, result, counts, 0);
        std::vector<int> other(result.size());
        co_await cohort::all_to_all_v(world, result, counts, other, counts);
      },
      options);
}

TEST_CASE("cross_rank checks tell all ranks of arguments that one refuses") {
  const cohort::communicator_options options{.checks = cohort::checks::cross_rank};
  on_world(
      [](communicator world) -> task {
        const cohort::log::capture logged;
        const bool last = world.rank() == world.size() - 1;
        const auto ranks = static_cast<std::size_t>(world.size());
        std::vector<int> mine(2);
        std::vector<int> all(2 * ranks + (last ? 1 : 0));
        const auto expected = last ? errc::size_mismatch : errc::cross_rank_mismatch;
        co_await expect(cohort::all_gather(world, mine, all), make_error_code(expected));
        if (!last) {
          CHECK_THAT(world.last_failure().text,
                     Catch::Matchers::ContainsSubstring("a rank cannot take part"));
        }
        // The next one is compared with the next one.
        int sum = 1;
        co_await cohort::all_reduce(world, sum, op::sum);
        CHECK(sum == world.size());
      },
      options);
}

TEST_CASE("cross_rank checks compare the blocks of neighbours") {
  const cohort::communicator_options options{.checks = cohort::checks::cross_rank};
  on_world(
      [](communicator world) -> task {
        const cohort::log::capture logged;
        const bool alone = world.size() == 1;
        const std::error_code expected =
            alone ? std::error_code() : make_error_code(errc::cross_rank_mismatch);
        const std::string text = "count differs between ranks: here " +
                                 std::to_string(world.rank() == 0 ? 3 : 4) +
                                 ", lowest 3, highest 4";
        const auto grid = cohort::mpi::cartesian::balanced(world.size(), 1, true);
        const communicator ring = co_await world.create(grid);
        std::vector<int> one(world.rank() == 0 ? 3U : 4U, 1);
        std::vector<int> two(2 * one.size());
        std::vector<int> around(2 * one.size());
        co_await expect(cohort::neighbor_all_gather(ring, one, around), expected);
        CHECK((alone || ring.last_failure().text.find(text) != std::string::npos));
        co_await expect(cohort::neighbor_all_to_all(ring, two, around), expected);
        CHECK((alone || ring.last_failure().text.find(text) != std::string::npos));

        // Rank 0 tells all others, which tell nobody; it hears from nobody.
        std::vector<int> from;
        std::vector<int> to;
        if (world.rank() != 0) from.push_back(0);
        for (int rank = 1; world.rank() == 0 && rank < world.size(); ++rank) to.push_back(rank);
        const communicator star = co_await world.create(cohort::mpi::dist_graph(from, to));
        std::vector<int> told(from.size() * 3, -1);
        const std::vector<int> said(world.rank() == 0 ? 3U : 0U, 7);
        co_await cohort::neighbor_all_gather(star, said, told);
        CHECK(told == std::vector<int>(told.size(), 7));
        const std::vector<int> parts(to.size() * 3, 8);
        co_await cohort::neighbor_all_to_all(star, parts, told);
        CHECK(told == std::vector<int>(told.size(), 8));
        std::vector<int> more(from.size() * 4);
        co_await expect(cohort::neighbor_all_gather(star, said, more), expected);

        // A rank without neighbours has no say; where nobody has one, all agree.
        std::vector<int> partner;
        if (world.rank() < 2 && !alone) partner.push_back(1 - world.rank());
        const communicator pair = co_await world.create(cohort::mpi::dist_graph(partner, partner));
        std::vector<int> sent(partner.size() * 2, world.rank());
        std::vector<int> got(sent.size(), -1);
        co_await cohort::neighbor_all_to_all(pair, sent, got);
        for (const int value : got) CHECK(value == 1 - world.rank());
        const std::vector<int> none;
        const communicator nobody = co_await world.create(cohort::mpi::dist_graph(none, none));
        co_await cohort::neighbor_all_to_all(nobody, none, got);
        co_await cohort::neighbor_all_gather(nobody, sent, got);

        // Blocks of any size agree in pairs only: nothing to compare but the elements.
        const auto length_of = [](int rank) { return rank == 0 ? 3U : 4U; };
        const std::vector<unsigned> counts{length_of(cohort_test::left_of(ring)),
                                           length_of(cohort_test::right_of(ring))};
        std::vector<int> both(counts[0] + counts[1]);
        co_await cohort::neighbor_all_gather_v(ring, one, both, counts);
        CHECK(both == std::vector<int>(both.size(), 1));
        std::vector<double> wide(2);
        std::vector<double> wide_result(2);
        const std::vector<int> ones(2, 1);
        std::vector<float> narrow(2);
        std::vector<float> narrow_result(2);
        if (world.rank() == 0) {
          co_await expect(cohort::neighbor_all_to_all_v(ring, wide, ones, wide_result, ones),
                          expected);
        } else {
          co_await expect(cohort::neighbor_all_to_all_v(ring, narrow, ones, narrow_result, ones),
                          expected);
        }
      },
      options);
}

TEST_CASE("cross_rank checks find another operation, and other counts of an all_gather_v") {
  const cohort::communicator_options options{.checks = cohort::checks::cross_rank};
  on_world(
      [](communicator world) -> task {
        const cohort::log::capture logged;
        const std::error_code expected =
            world.size() == 1 ? std::error_code() : make_error_code(errc::cross_rank_mismatch);
        int value = 1;
        if (world.rank() == 0) {
          co_await expect(cohort::all_reduce(world, value, op::logical_and), expected);
        } else {
          co_await expect(cohort::all_reduce(world, value, op::logical_xor), expected);
        }
        co_await cohort::all_reduce(world, value, op::logical_and);
        CHECK(value == 1);
        // The last rank believes that rank 0 gives one element more.
        std::vector<std::size_t> counts(static_cast<std::size_t>(world.size()), 2);
        if (world.rank() != 0 && world.rank() + 1 == world.size()) ++counts.front();
        const std::vector<int> two(2, world.rank());
        std::vector<int> all(2 * counts.size() + 1);
        co_await expect(cohort::all_gather_v(world, two, all, counts), expected);
      },
      options);
}
