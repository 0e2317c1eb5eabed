// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// op::adasum in direct calls. Part of the executable collectives.reduction.

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/core/buffer.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/when_all.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "collectives/support.hpp"
#include "support/adasum.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using cohort::as_future;
using cohort_test::adasum_of_gradients;
using cohort_test::gradient_of;
using cohort_test::same_bits;
namespace adasum_op = cohort::op;

}  // namespace

TEMPLATE_TEST_CASE("all_reduce takes the Adasum of the ranks' buffers", "[adasum]", float, double,
                   cohort::f16, cohort::bf16) {
  cohort_test::on_world([](cohort::communicator world) -> collectives_test::task {
    using T = TestType;
    const int me = world.rank();
    for (const std::size_t count : {0, 1, 7, 1000, 100'003}) {
      CAPTURE(count);
      const std::vector<T> expected = adasum_of_gradients<T>(world.size(), count);
      auto data = gradient_of<T>(me, count);
      co_await cohort::all_reduce(world, data, adasum_op::adasum);
      CHECK(same_bits(data, expected));

      const auto in = gradient_of<T>(me, count);
      std::vector<T> out(count);
      co_await cohort::all_reduce(world, in, out, adasum_op::adasum);
      CHECK(same_bits(out, expected));
      CHECK(same_bits(in, gradient_of<T>(me, count)));

      const auto back =
          co_await cohort::all_reduce(world, gradient_of<T>(me, count), adasum_op::adasum);
      CHECK(same_bits(back, expected));
    }
  });
}

TEST_CASE("views with strides are packed for an Adasum", "[adasum]") {
  cohort_test::on_world([](cohort::communicator world) -> collectives_test::task {
    const auto mine = gradient_of<float>(world.rank(), 60);
    const auto expected = adasum_of_gradients<float>(world.size(), 60);
    const auto spread = [](const std::vector<float>& from) {
      std::vector<float> to(120, -7.0F);
      for (std::size_t i = 0; i < from.size(); ++i) to[i / 3 * 6 + i % 3] = from[i];
      return to;
    };
    auto data = spread(mine);
    co_await cohort::all_reduce(world, cohort::strided_view(data.data(), 20, 3, 6),
                                adasum_op::adasum);
    CHECK(data == spread(expected));

    const auto in = spread(mine);
    std::vector<float> out(120, -7.0F);
    co_await cohort::all_reduce(world, cohort::strided_view(in.data(), 20, 3, 6),
                                cohort::strided_view(out.data(), 20, 3, 6), adasum_op::adasum);
    CHECK(out == spread(expected));
  });
}

// Small ones are done sooner than large ones that were started before them, and the messages of
// users go between the same ranks.
TEST_CASE("many Adasums are under way at once, beside other operations", "[adasum]") {
  cohort_test::on_world([](cohort::communicator world) -> collectives_test::task {
    const int n = world.size();
    const int me = world.rank();
    const auto count_of = [](unsigned i) {
      return i % 4 == 0 ? std::size_t{70'000} : std::size_t{i};
    };
    constexpr unsigned many = 60;
    std::vector<std::vector<double>> data;
    for (unsigned i = 0; i < many; ++i) {
      data.push_back(gradient_of<double>(me, count_of(i), i + 1));
    }
    std::vector<int> sums(many, me);
    std::vector<cohort::future<void>> all;
    for (unsigned i = 0; i < many; ++i) {
      all.push_back(cohort::all_reduce(world, data[i], adasum_op::adasum, as_future));
      all.push_back(cohort::all_reduce(world, sums[i], adasum_op::sum, as_future));
    }
    int from_left = -1;
    const int right = cohort_test::right_of(world);
    if (n > 1) {
      auto sending = cohort::send(world, me, right, 2, as_future);
      co_await cohort::recv(world, from_left, cohort::any_source, cohort::any_tag);
      co_await std::move(sending);
      CHECK(from_left == cohort_test::left_of(world));
    }
    co_await cohort::when_all(std::move(all));
    for (unsigned i = 0; i < many; ++i) {
      CAPTURE(i);
      CHECK(same_bits(data[i], adasum_of_gradients<double>(n, count_of(i), i + 1)));
      CHECK(sums[i] == n * (n - 1) / 2);
    }
  });
}

TEST_CASE("an Adasum of a communicator that was made of others", "[adasum]") {
  cohort_test::on_world([](cohort::communicator world) -> collectives_test::task {
    for (int round = 0; round < 3; ++round) {  // whose memory is that of one which is gone
      auto backwards = co_await world.split(0, world.size() - world.rank());
      auto data = gradient_of<float>(backwards.rank(), 500);
      for (int again = 0; again <= round; ++again) {
        data = gradient_of<float>(backwards.rank(), 500);
        co_await cohort::all_reduce(backwards, data, adasum_op::adasum);
        CHECK(same_bits(data, adasum_of_gradients<float>(world.size(), 500)));
      }
      auto halves = co_await world.split(world.rank() % 2);
      auto some = gradient_of<float>(halves.rank(), 200);
      if (world.rank() % 2 == 0) {  // so that the ranks have called different numbers of them
        co_await cohort::all_reduce(halves, some, adasum_op::adasum);
        CHECK(same_bits(some, adasum_of_gradients<float>(halves.size(), 200)));
      }
    }
  });
}

TEST_CASE("cross_rank checks tell an Adasum from a sum", "[adasum]") {
  const cohort::communicator_options options{.checks = cohort::checks::cross_rank};
  cohort_test::on_world(
      [](cohort::communicator world) -> collectives_test::task {
        auto data = gradient_of<double>(world.rank(), 33);
        const bool alone = world.size() == 1;
        const auto call = [&] {
          return world.rank() == 0 ? cohort::all_reduce(world, data, adasum_op::adasum)
                                   : cohort::all_reduce(world, data, adasum_op::sum);
        };
        const cohort::log::capture logged;
        const std::error_code code = co_await cohort_test::code_of(call());
        CHECK(code ==
              (alone ? std::error_code() : make_error_code(cohort::errc::cross_rank_mismatch)));
        if (!alone) CHECK(world.last_failure().text.find("operation") != std::string::npos);
        data = gradient_of<double>(world.rank(), 33);
        co_await cohort::all_reduce(world, data, adasum_op::adasum);
        CHECK(same_bits(data, adasum_of_gradients<double>(world.size(), 33)));
      },
      options);
}

TEST_CASE("an intercommunicator has no Adasum", "[adasum]") {
  asio::io_context io;
  const cohort::communicator world(io);
  if (world.size() == 1) return;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm across = MPI_COMM_NULL;
  MPI_Comm_split(world.native(), world.rank() % 2, 0, &half);
  MPI_Intercomm_create(half, 0, world.native(), 1 - world.rank() % 2, 7, &across);
  {
    const cohort::communicator others(io, across);
    std::vector<double> data(3, 1.0);
    const cohort::log::capture logged;
    const auto code = cohort_test::run(
        io, cohort_test::code_of(cohort::all_reduce(others, data, adasum_op::adasum)));
    CHECK(code == cohort::errc::not_supported);
    CHECK(data == std::vector<double>(3, 1.0));
  }
  MPI_Comm_free(&half);
  MPI_Comm_free(&across);
}
