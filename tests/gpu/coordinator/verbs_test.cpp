// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Named verbs on device memory, on NCCL.

#include "support.hpp"

#include <cmath>

using namespace cohort_test;

TEST_CASE("named reductions on device memory, submitted in another order on each rank") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const int ranks = world.size();
    device::stream on;
    constexpr std::size_t tensors = 30;
    for (int step = 0; step < 3; ++step) {
      std::vector<device::vector<float>> buffers;
      for (std::size_t i = 0; i < tensors; ++i) {
        buffers.push_back(co_await filled(on, 1 + 17 * i, static_cast<float>(world.rank() + step)));
      }
      std::size_t over = 0;
      std::size_t failed = 0;
      for (std::size_t k = 0; k < tensors; ++k) {
        const std::size_t i = (k * 7 + static_cast<std::size_t>(world.rank()) * 11) % tensors;
        coord.all_reduce("tensor" + std::to_string(i), buffers[i], op::sum,
                         [&](std::exception_ptr why) {
                           ++over;
                           if (why) ++failed;
                         });
      }
      CHECK(co_await soon([&] { return over == tensors; }));
      CHECK(failed == 0);
      const auto wanted = static_cast<float>(ranks * (ranks - 1) / 2 + ranks * step);
      for (const auto& each : buffers) {
        CHECK(co_await now_in(each) == std::vector<float>(each.size(), wanted));
      }
    }
    if (ranks > 1) CHECK(coord.stats().packs > 0);
  });
}

TEST_CASE("every named verb on device memory") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const int ranks = world.size();
    const int rank = world.rank();
    const auto n = static_cast<std::size_t>(ranks);
    const int root = ranks - 1;
    device::stream on;

    auto means = co_await filled(on, 100, rank + 0.5);
    co_await coord.all_reduce("average", means, op::average);
    const auto seen_means = co_await now_in(means);
    for (const double one : seen_means) CHECK(std::abs(one - ranks / 2.0) < 1e-12);

    auto from = co_await filled(on, 10, std::int32_t{rank});
    device::vector<std::int32_t> to(10, on);
    co_await coord.all_reduce("to", from, to, op::max);
    CHECK(co_await now_in(to) == std::vector<std::int32_t>(10, ranks - 1));

    co_await coord.reduce("reduce", from, op::sum, root);
    CHECK(co_await now_in(from) ==
          std::vector<std::int32_t>(10, rank == root ? ranks * (ranks - 1) / 2 : rank));

    auto told = co_await filled(on, 5, std::int16_t(rank));
    co_await coord.broadcast("broadcast", told, root);
    CHECK(co_await now_in(told) == std::vector<std::int16_t>(5, static_cast<std::int16_t>(root)));

    auto mine = co_await filled(on, static_cast<std::size_t>(rank) + 1, float(rank));
    std::vector<float> wanted;
    for (int r = 0; r < ranks; ++r)
      wanted.insert(wanted.end(), static_cast<std::size_t>(r) + 1, float(r));
    for (int again = 0; again < 2; ++again) {  // with new sizes, and with known ones
      auto all = co_await coord.all_gather("gather", mine);
      CHECK(co_await now_in(all) == wanted);
    }

    std::vector<std::size_t> splits;  // rank r sends s + 1 elements to rank s
    std::vector<std::int64_t> outgoing;
    std::vector<std::int64_t> incoming;
    for (int other = 0; other < ranks; ++other) {
      splits.push_back(static_cast<std::size_t>(other) + 1);
      outgoing.insert(outgoing.end(), splits.back(), 10 * rank + other);
      incoming.insert(incoming.end(), static_cast<std::size_t>(rank) + 1, 10 * other + rank);
    }
    auto parts = co_await on_device(on, outgoing);
    auto [arrived, counts] = co_await coord.all_to_all("exchange", parts, splits);
    CHECK(counts == std::vector<std::size_t>(n, static_cast<std::size_t>(rank) + 1));
    CHECK(co_await now_in(arrived) == incoming);

    auto whole = co_await filled(on, 3 * n + 1, std::uint32_t{2});
    auto part = co_await coord.reduce_scatter("scatter", whole, op::sum);
    CHECK(part.size() == (rank == 0 ? 4 : 3));
    CHECK(co_await now_in(part) ==
          std::vector<std::uint32_t>(part.size(), static_cast<std::uint32_t>(2 * ranks)));

    auto piece = co_await filled(on, 2, std::int32_t{rank});
    auto gathered = co_await coord.gather("to root", piece, root);
    if (rank == root) {
      std::vector<std::int32_t> twice;
      for (int r = 0; r < ranks; ++r) twice.insert(twice.end(), 2, r);
      CHECK(co_await now_in(gathered) == twice);
    }
    auto source = co_await filled(on, rank == root ? 4 * n : 0, std::int32_t{9});
    device::vector<std::int32_t> share(4, on);
    co_await coord.scatter("from root", source, share, root);
    CHECK(co_await now_in(share) == std::vector<std::int32_t>(4, 9));

    co_await coord.barrier("barrier");
    std::vector<int> host{rank};
    co_await coord.all_reduce("of the host", host, op::sum);
    CHECK(host.front() == ranks * (ranks - 1) / 2);
  });
}

TEST_CASE("named results go into device memory of the caller") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const int ranks = world.size();
    const int rank = world.rank();
    const auto n = static_cast<std::size_t>(ranks);
    const int root = ranks - 1;
    device::stream on;
    // Element `i` of each is 10 r + i in what rank r brings; behind what comes it stays -1.
    const auto brings = [](int of, std::size_t count) {
      std::vector<std::int32_t> block(count);
      for (std::size_t i = 0; i < count; ++i) block[i] = 10 * of + static_cast<std::int32_t>(i);
      return block;
    };
    std::vector<std::int32_t> wanted;
    for (int r = 0; r < ranks; ++r) {
      const auto block = brings(r, static_cast<std::size_t>(r) + 1);
      wanted.insert(wanted.end(), block.begin(), block.end());
    }
    const std::size_t total = wanted.size();
    wanted.resize(total + 2, -1);
    auto mine = co_await on_device(on, brings(rank, static_cast<std::size_t>(rank) + 1));
    for (int again = 0; again < 2; ++again) {  // with new sizes, and with known ones
      auto out = co_await filled(on, total + 2, std::int32_t{-1});
      const std::size_t come = co_await coord.all_gather("gather", mine, out);
      CHECK(come == total);
      CHECK(co_await now_in(out) == wanted);
    }
    // Other ranks need not do the same.
    auto out = co_await filled(on, total + 2, std::int32_t{-1});
    if (rank == 0) out = co_await coord.all_gather("either", mine);
    if (rank != 0) co_await coord.all_gather("either", mine, device::span<std::int32_t>(out));
    std::vector<std::int32_t> seen = co_await now_in(out);
    seen.resize(total);
    CHECK(seen == std::vector<std::int32_t>(wanted.begin(), wanted.end() - 2));

    const std::vector<int> splits(n, 2);
    auto outgoing = co_await on_device(on, brings(rank, 2 * n));
    auto incoming = co_await filled(on, 2 * n + 1, std::int32_t{-1});
    const auto counts = co_await coord.all_to_all("exchange", outgoing, splits, incoming);
    CHECK(counts == std::vector<std::size_t>(n, 2));
    std::vector<std::int32_t> parts;
    for (int r = 0; r < ranks; ++r) {
      parts.push_back(10 * r + 2 * rank);
      parts.push_back(10 * r + 2 * rank + 1);
    }
    parts.push_back(-1);
    CHECK(co_await now_in(incoming) == parts);

    auto whole = co_await filled(on, 3 * n + 1, std::uint32_t{2});
    auto part = co_await filled(on, 5, std::uint32_t{7});
    const std::size_t got = co_await coord.reduce_scatter("scatter", whole, part, op::sum);
    CHECK(got == (rank == 0 ? 4 : 3));
    std::vector<std::uint32_t> sums(got, static_cast<std::uint32_t>(2 * ranks));
    sums.resize(5, 7);
    CHECK(co_await now_in(part) == sums);

    auto piece = co_await filled(on, 2, std::int32_t{rank});
    auto gathered = co_await filled(on, rank == root ? 2 * n : 0, std::int32_t{-1});
    const std::size_t blocks = co_await coord.gather("to root", piece, gathered, root);
    CHECK(blocks == (rank == root ? 2 * n : 0));
    std::vector<std::int32_t> twice;
    for (int r = 0; r < ranks && rank == root; ++r) twice.insert(twice.end(), 2, r);
    CHECK(co_await now_in(gathered) == twice);

    // One rank lacks room.
    auto small = co_await filled(on, rank == root ? 1 : total, std::int32_t{-1});
    auto gathering = coord.all_gather("small", mine, small);
    if (rank == root && total > 1) {
      const auto problem = co_await caught<cohort::error>(std::move(gathering));
      REQUIRE(problem);
      CHECK(problem->code() == cohort::errc::size_mismatch);
      CHECK(co_await now_in(small) == std::vector<std::int32_t>(1, -1));
    } else {
      const std::size_t come = co_await std::move(gathering);
      CHECK(come == total);
    }
    auto next = co_await filled(on, 3, std::int32_t{1});
    co_await coord.all_reduce("next", next, op::sum);
    CHECK(co_await now_in(next) == std::vector<std::int32_t>(3, ranks));
    co_await coord.shutdown();
  });
}

TEST_CASE("what is queued on the stream after an enqueued operation sees its result") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    device::stream compute;
    auto values = co_await filled(compute, 1000, 1.0F);
    co_await coord.all_reduce("w", values, op::sum,
                              {.on = compute, .ends = cohort::until::enqueued});
    // Nobody has waited for it, but what follows on that stream does.
    CHECK(co_await now_in(values) == std::vector<float>(1000, static_cast<float>(world.size())));
  });
}

TEST_CASE("a persistent group on device memory is elected at each start") {
  const bool enqueued = GENERATE(false, true);
  on_gpus([enqueued](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const auto ranks = static_cast<float>(world.size());
    device::stream on;
    auto a = co_await filled(on, 10, 1.0F);
    auto b = co_await filled(on, 1000, 2.0F);
    cohort::call_options options;
    if (enqueued) options = {.on = on, .ends = cohort::until::enqueued};
    auto group = co_await coord.make_persistent(cohort::bundle("step").add("a", a).add("b", b),
                                                op::sum, options);
    auto other = co_await filled(on, 5, 1.0F);
    for (int start = 0; start < 3; ++start) {
      // In another order beside another operation on each rank.
      int over = 0;
      const auto ended = [&](std::exception_ptr why) {
        CHECK_FALSE(why);
        ++over;
      };
      const bool first = (world.rank() + start) % 2 == 0;
      if (first) group.start(ended);
      coord.all_reduce("other", other, op::max, ended);
      if (!first) group.start(ended);
      CHECK(co_await soon([&] { return over == 2; }));
    }
    CHECK(co_await now_in(a) == std::vector<float>(10, ranks * ranks * ranks));
    CHECK(co_await now_in(b) == std::vector<float>(1000, 2 * ranks * ranks * ranks));
    co_await group.remove();
    auto late = caught<std::system_error>(group.start());
    const auto refused = co_await std::move(late);
    CHECK((refused && refused->code() == cohort::errc::not_accepting));
  });
}

TEST_CASE("a start of a group that a rank which leaves has not made ends with peer_lost") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    device::stream on;
    auto a = co_await filled(on, 10, 1.0F);
    {
      cohort::coordinator coord(world, nccl::backend());
      auto group = co_await coord.make_persistent(cohort::bundle("step").add("a", a), op::sum);
      co_await group.start();
      if (world.rank() != 0) {
        auto lost = caught<cohort::peer_lost_error>(group.start());
        const auto problem = co_await std::move(lost);
        CHECK(problem.has_value());
      }
    }
    auto all = cohort::barrier(world);
    co_await std::move(all);
  });
}
