// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file The verbs: what they compute, in which order, and when they end. The same with the double
/// and with real devices.

#include "gpu/nccl/support.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace {

using namespace cohort_test;
using cohort::communicator;

}  // namespace

TEST_CASE("an all_reduce on device memory is ordered with the stream and awaited") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    CHECK(gpus.rank() == world.rank());
    CHECK(gpus.size() == world.size());
    const device::stream compute;
    device::vector<float> g(1000, compute);
    device::pinned_vector<float> host(1000, compute);
    const float n = static_cast<float>(world.size());
    write(compute, host, g, static_cast<float>(world.rank() + 1));  // queued, not waited for
    co_await nccl::all_reduce(gpus, compute, g, op::sum);
    auto sums = co_await read(compute, g);
    CHECK(sums == std::vector<float>(1000, n * (n + 1) / 2));

    device::vector<float> h(1000, compute);
    write(compute, host, g, static_cast<float>(2 * world.rank() + 1));
    co_await nccl::all_reduce(gpus, compute, g, h, op::average);
    auto averages = co_await read(compute, h);
    CHECK(averages == std::vector<float>(1000, n));
    co_await nccl::all_reduce(gpus, compute, h, h, op::max);  // the same memory: in place
    auto same = co_await read(compute, h);
    CHECK(same == averages);
  });
}

TEST_CASE("no element is left out where one rank multiplies alone") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    const auto n = static_cast<double>(world.size());
    for (const std::size_t count : {1, 2047, 2049, 8934, 9871, 65537, 300001}) {
      INFO(count << " elements");
      auto values = co_await filled<double>(s, count, 3.0);
      auto means = co_await filled<double>(s, count, 0.0);
      co_await nccl::all_reduce(gpus, s, values, means, op::average);
      CHECK(co_await read(s, means) == std::vector<double>(count, 3.0));
      co_await nccl::all_reduce(gpus, s, values, nccl::op::scaled<double>(2.0));
      CHECK(co_await read(s, values) == std::vector<double>(count, 6.0 * n));
    }
  });
}

TEST_CASE("every reduction and element type of NCCL's gives what it should") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    const int n = world.size();
    const int mine = world.rank() + 1;
    const auto check_type = [&]<class T>(T) -> asio::awaitable<void> {
      auto v = co_await filled<T>(s, 5, static_cast<T>(static_cast<float>(mine)));
      co_await nccl::all_reduce(gpus, s, v, op::sum);
      auto sums = co_await read(s, v);
      CHECK(static_cast<float>(sums[4]) == static_cast<float>(n * (n + 1) / 2));
      v = co_await filled<T>(s, 5, static_cast<T>(static_cast<float>(mine)));
      co_await nccl::all_reduce(gpus, s, v, op::max);
      auto most = co_await read(s, v);
      CHECK(static_cast<float>(most[0]) == static_cast<float>(n));
      v = co_await filled<T>(s, 5, static_cast<T>(static_cast<float>(mine)));
      co_await nccl::all_reduce(gpus, s, v, op::min);
      auto least = co_await read(s, v);
      CHECK(static_cast<float>(least[0]) == 1.0F);
      v = co_await filled<T>(s, 5, static_cast<T>(2.0F));
      co_await nccl::all_reduce(gpus, s, v, op::product);
      auto product = co_await read(s, v);
      CHECK(static_cast<float>(product[0]) == static_cast<float>(1 << n));
      v = co_await filled<T>(s, 5, static_cast<T>(static_cast<float>(2 * mine - 1)));
      co_await nccl::all_reduce(gpus, s, v, op::average);
      auto average = co_await read(s, v);
      CHECK(static_cast<float>(average[0]) == static_cast<float>(n));
    };
    co_await check_type(std::int8_t{});
    co_await check_type(std::uint8_t{});
    co_await check_type(std::int32_t{});
    co_await check_type(std::uint32_t{});
    co_await check_type(std::int64_t{});
    co_await check_type(std::uint64_t{});
    co_await check_type(float{});
    co_await check_type(double{});
    co_await check_type(cohort::f16(0.0F));
    co_await check_type(cohort::bf16(0.0F));
    co_await check_type(__half(0.0F));
    co_await check_type(__nv_bfloat16(0.0F));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 3)
    if (nccl::library_version() >= NCCL_VERSION(2, 24, 3)) {
      co_await check_type(__nv_fp8_e4m3(0.0F));
      co_await check_type(__nv_fp8_e5m2(0.0F));
    }
#endif

    auto scaled = co_await filled<float>(s, 5, 1.0F);
    co_await nccl::all_reduce(gpus, s, scaled, nccl::op::scaled<float>(static_cast<float>(mine)));
    auto got = co_await read(s, scaled);
    CHECK(got[4] == static_cast<float>(n * (n + 1) / 2));

    struct complex_number {
      using value_type = float;
      float re, im;
      [[nodiscard]] float real() const { return re; }
      [[nodiscard]] float imag() const { return im; }
    };
    complex_number one{1.0F, 2.0F};
    auto z = co_await filled<complex_number>(s, 3, one);
    co_await nccl::all_reduce(gpus, s, z, op::sum);
    auto zs = co_await read(s, z);
    CHECK(zs[2].re == static_cast<float>(n));
    CHECK(zs[2].im == static_cast<float>(2 * n));
    complex_number odd{static_cast<float>(2 * mine - 1), 2.0F};
    z = co_await filled<complex_number>(s, 3, odd);
    co_await nccl::all_reduce(gpus, s, z, op::average);
    zs = co_await read(s, z);
    CHECK(zs[1].re == static_cast<float>(n));
    CHECK(zs[1].im == 2.0F);
    // One less than what n divides, and so truncated toward zero.
    const std::int32_t below = -6 - 2 * mine - (mine == 1 ? 1 : 0);
    auto negative = co_await filled<std::int32_t>(s, 3, below);
    co_await nccl::all_reduce(gpus, s, negative, op::average);
    auto truncated = co_await read(s, negative);
    CHECK(truncated[0] == -(6 * n + n * (n + 1) + 1) / n);
  });
}

TEST_CASE("the other collectives move and combine what they should") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    const std::size_t n = static_cast<std::size_t>(world.size());
    const int rank = world.rank();
    const int last = world.size() - 1;

    struct point {
      std::int16_t x;
      char name[3];
    };
    point there{static_cast<std::int16_t>(rank), {'a', 'b', 'c'}};
    auto points = co_await filled<point>(s, 4, there);
    co_await nccl::broadcast(gpus, s, points, last);
    auto all_points = co_await read(s, points);
    CHECK(all_points[3].x == last);

    auto mine = co_await filled<int>(s, 2, rank + 1);
    device::vector<int> all(2 * n, s);
    co_await nccl::all_gather(gpus, s, mine, all);
    auto gathered = co_await read(s, all);
    for (std::size_t i = 0; i < 2 * n; ++i) CHECK(gathered[i] == static_cast<int>(i / 2) + 1);

    device::vector<int> part(2, s);
    co_await nccl::reduce_scatter(gpus, s, all, part, op::sum);
    auto parts = co_await read(s, part);
    CHECK(parts[1] == static_cast<int>(n) * (rank + 1));

    device::vector<int> swapped(2 * n, s);
    co_await nccl::all_to_all(gpus, s, all, swapped);
    auto swaps = co_await read(s, swapped);
    for (const int value : swaps) CHECK(value == rank + 1);

    device::vector<int> rooted(rank == last ? 2 * n : 0, s);
    co_await nccl::gather(gpus, s, mine, rooted, last);
    if (rank == last) {
      auto found = co_await read(s, rooted);
      CHECK(found == gathered);
    }
    co_await nccl::scatter(gpus, s, rooted, part, last);
    auto scattered = co_await read(s, part);
    CHECK(scattered[0] == rank + 1);

    device::vector<int> combined(rank == 0 ? 2 : 0, s);
    co_await nccl::reduce(gpus, s, mine, combined, op::sum, 0);
    if (rank == 0) {
      auto found = co_await read(s, combined);
      CHECK(found[1] == static_cast<int>(n * (n + 1) / 2));
    }
    co_await nccl::barrier(gpus, s);
  });
}

TEST_CASE("collectives with a count for each rank leave out pairs with nothing") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    const std::size_t n = static_cast<std::size_t>(world.size());
    const std::size_t rank = static_cast<std::size_t>(world.rank());
    std::vector<std::size_t> counts(n);
    std::iota(counts.begin(), counts.end(), std::size_t{0});  // rank 0 has nothing
    const std::size_t total = n * (n - 1) / 2;
    auto mine = co_await filled<int>(s, rank, static_cast<int>(rank));
    device::vector<int> all(total, s);
    co_await nccl::all_gather_v(gpus, s, mine, all, counts);
    auto got = co_await read(s, all);
    std::vector<int> expected;
    for (std::size_t i = 0; i < n; ++i) expected.insert(expected.end(), i, static_cast<int>(i));
    CHECK(got == expected);

    device::vector<int> part(rank, s);
    co_await nccl::reduce_scatter_v(gpus, s, all, part, counts, op::sum);
    auto parts = co_await read(s, part);
    CHECK(parts == std::vector<int>(rank, static_cast<int>(rank * n)));
    auto ones = co_await filled<float>(s, total, 1.0F);
    device::vector<float> scaled(rank, s);
    const auto by = nccl::op::scaled<float>(static_cast<float>(rank));
    co_await nccl::reduce_scatter_v(gpus, s, ones, scaled, counts, by);
    auto factors = co_await read(s, scaled);
    CHECK(factors == std::vector<float>(rank, static_cast<float>(total)));

    // Rank i sends j elements to rank j.
    device::vector<int> in(total, s);
    co_await nccl::broadcast(gpus, s, all, 0);
    device::copy(s, all, in);
    std::vector<std::size_t> from_each(n, rank);
    device::vector<int> out(rank * n, s);
    co_await nccl::all_to_all_v(gpus, s, in, counts, out, from_each);
    auto came = co_await read(s, out);
    CHECK(came == std::vector<int>(rank * n, static_cast<int>(rank)));
  });
}

TEST_CASE("messages go around a ring as one group") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto out = co_await filled<int>(s, 3, world.rank());
    device::vector<int> in(3, s);
    device::vector<int> nothing(0, s);
    auto ring = nccl::group(gpus, s);
    ring.send(out, right_of(world)).recv(in, left_of(world)).send(nothing, 0);
    co_await ring.run();
    auto got = co_await read(s, in);
    CHECK(got[2] == left_of(world));

    if (world.size() < 2) co_return;
    if (world.rank() == 0) co_await nccl::send(gpus, s, out, 1);
    if (world.rank() == 1) {
      co_await nccl::recv(gpus, s, in, 0);
      got = co_await read(s, in);
      CHECK(got[0] == 0);
    }
  });
}

TEST_CASE("an enqueued operation orders the stream, and its memory may go") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream compute;
    const device::stream elsewhere;
    const int n = world.size();
    device::pinned_vector<int> result(100, compute);
    {
      auto v = co_await filled<int>(elsewhere, 100, 1);
      for (int round = 0; round < 10; ++round) {
        co_await nccl::all_reduce(gpus, compute, v, op::sum, nccl::until::enqueued);
      }
      device::copy(compute, v, result);  // sees the result of all ten
    }  // the vector goes; its stream is `elsewhere`
    co_await device::done(compute);
    int expected = 1;
    for (int round = 0; round < 10; ++round) expected *= n;
    CHECK(result[99] == expected);
  });
}

TEST_CASE("a vector that is moved in comes back, and a detached one stays until it is over") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    auto back = co_await nccl::all_reduce(gpus, s, std::move(v), op::sum);
    auto got = co_await read(s, back);
    CHECK(got[9] == world.size());
    nccl::all_reduce(gpus, s, std::move(back), op::sum, nccl::until::complete,
                     [](std::error_code, device::vector<int>) {});
    {
      auto dropped = co_await filled<int>(s, 10, 1);
      nccl::all_reduce(gpus, s, dropped, op::sum, asio::detached);
    }
    co_await nccl::barrier(gpus, s);
    auto [ec] = co_await nccl::barrier(gpus, s, cohort::as_tuple);
    CHECK(!ec);
    auto f = nccl::barrier(gpus, s, cohort::as_future);
    co_await std::move(f);
  });
}

TEST_CASE("operations of nothing end and launch nothing") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    device::vector<float> nothing(0, s);
    co_await nccl::all_reduce(gpus, s, nothing, op::sum);
    co_await nccl::all_reduce(gpus, s, nothing, op::sum, nccl::until::enqueued);
    auto empty = nccl::group(gpus, s);
    co_await empty.run();
    CHECK_DOUBLE(fake_nccl::launches().empty());
  });
}

TEST_CASE("what is wrong with arguments is said before NCCL is called") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    device::vector<int> a(4, s);
    device::vector<int> b(3, s);
    auto code = co_await code_of(nccl::all_reduce(gpus, s, a, b, op::sum));
    CHECK(code == cohort::errc::size_mismatch);
    CHECK(gpus.last_failure().text.find("out=3 elements, expected=4") != std::string::npos);
    const std::vector<std::size_t> counts(static_cast<std::size_t>(world.size()), 3);
    code = co_await code_of(nccl::reduce_scatter_v(gpus, s, a, a, counts, op::sum));
    CHECK(code == cohort::errc::size_mismatch);
    code = co_await code_of(nccl::broadcast(gpus, s, a, world.size()));
    CHECK(code == cohort::errc::bad_root);
    code = co_await code_of(nccl::send(gpus, s, a, -1));
    CHECK(code == cohort::errc::bad_rank);
    const auto whole = device::span<int>(a);
    code = co_await code_of(
        nccl::all_reduce(gpus, s, whole.subspan(0, 3), whole.subspan(1, 3), op::sum));
    CHECK(code == cohort::errc::invalid_argument);
    nccl::communicator none;
    code = co_await code_of(nccl::barrier(none, s));
    CHECK(code == cohort::errc::invalid_communicator);
    co_await nccl::barrier(gpus, s);  // it still works
  });
}

TEST_CASE("gathering and scattering work in place, at the offset of the rank and nowhere else") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    const auto n = static_cast<std::size_t>(world.size());
    const auto rank = static_cast<std::size_t>(world.rank());
    auto all = co_await filled<int>(s, 4 * n, world.rank() + 1);
    const device::span<int> whole(all);
    const device::span<int> mine = whole.subspan(4 * rank, 4);
    co_await nccl::all_gather(gpus, s, mine, whole);
    auto got = co_await read(s, all);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == static_cast<int>(i / 4) + 1);

    co_await nccl::reduce_scatter(gpus, s, whole, mine, op::sum);
    got = co_await read(s, all);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(got[4 * rank + i] == world.size() * (world.rank() + 1));
    }

    if (n > 1) {
      const device::span<int> elsewhere = whole.subspan(rank == 0 ? 1 : 0, 4);
      auto code = co_await code_of(nccl::all_gather(gpus, s, elsewhere, whole));
      CHECK(code == cohort::errc::invalid_argument);
      code = co_await code_of(nccl::reduce_scatter(gpus, s, whole, elsewhere, op::sum));
      CHECK(code == cohort::errc::invalid_argument);
    }
    auto code = co_await code_of(nccl::all_to_all(gpus, s, whole, whole));
    CHECK(code == cohort::errc::invalid_argument);
  });
}
