// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Reductions that NCCL lacks: through the host where an option says so, refused elsewhere;
/// and what is only moved, of whatever type.

#include "support.hpp"

#include <cohort/coordinator/bundle.hpp>

#include <complex>
#include <cstddef>
#include <cstdint>

using namespace cohort_test;

namespace {

nccl::backend_options with_host_path() {
  nccl::backend_options made;
  made.host_path = true;
  return made;
}

/// Nothing that NCCL or MPI knows: 24 bytes.
struct place {
  double at;
  std::int64_t count;
  std::int16_t kind;
  friend bool operator==(const place&, const place&) = default;
};

/// Of the highest rank, whose number is counted: not commutative. Never called with what is no
/// element, for it divides by `count`.
constexpr auto later = [](const place& a, const place& b) {
  return place{b.at, a.count + b.count, static_cast<std::int16_t>(a.count / b.count >= 0 ? 7 : 0)};
};

template <class T>
asio::awaitable<bool> holds(const device::vector<T>& values, T wanted) {
  const std::vector<T> found = co_await now_in(values);
  co_return std::all_of(found.begin(), found.end(), [&](const T& one) { return one == wanted; });
}

/// Ends of operations, and what they say.
bool all_well(const std::deque<ending>& all) {
  for (const ending& one : all) {
    if (!one.well()) UNSCOPED_INFO(one.text());
  }
  return std::all_of(all.begin(), all.end(), [](const ending& one) { return one.well(); });
}

}  // namespace

TEST_CASE("reductions that NCCL lacks go through the host where an option says so") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend(with_host_path()));
    const device::stream on;
    const int n = world.size();
    const int mine = world.rank() + 1;
    const int all = n * (n + 1) / 2;
    const bool last = world.rank() == n - 1;
    using complex = std::complex<double>;
    auto sum = co_await filled(on, 100, static_cast<std::int16_t>(-mine));
    auto most = co_await filled(on, 9, static_cast<std::uint16_t>(mine));
    auto mean = co_await filled(on, 9, static_cast<std::int16_t>(mine));
    auto both = co_await filled(on, 33, last);
    auto either = co_await filled(on, 33, last);
    auto bits = co_await filled(on, 7, 1 << mine);
    auto flipped = co_await filled(on, 7, std::byte{1});
    auto product = co_await filled(on, 5, complex(0, 2));
    auto scaled = co_await filled(on, 5, complex(1, 0));
    auto own = co_await filled(on, 11, place{1.0 * mine, mine, 0});
    auto lowest = co_await filled(on, 3, cohort::located<float>{-1.0F * mine, mine});
    std::deque<ending> ends;
    const auto next = [&] { return ends.emplace_back().handler(); };
    coord.all_reduce("sum", sum, op::sum, next());
    coord.all_reduce("most", most, op::max, next());
    coord.all_reduce("mean", mean, op::average, next());
    coord.all_reduce("both", both, op::logical_and, next());
    coord.all_reduce("either", either, op::logical_or, next());
    coord.all_reduce("bits", bits, op::bit_or, next());
    coord.all_reduce("flipped", flipped, op::bit_xor, next());
    coord.all_reduce("product", product, op::product, next());
    coord.all_reduce("scaled", scaled, op::product, {.prescale = 0.5, .postscale = 3.0}, next());
    coord.all_reduce("own", own, cohort::user_op{later, cohort::non_commutative}, next());
    coord.all_reduce("lowest", lowest, op::min_loc, next());
    CHECK(co_await soon([&] { return all_over(ends); }));
    CHECK(all_well(ends));
    complex powers(1, 0);
    double halves = 3;
    for (int i = 0; i < n; ++i) powers *= complex(0, 2);
    for (int i = 0; i < n; ++i) halves /= 2;
    CHECK(co_await holds(sum, static_cast<std::int16_t>(-all)));
    CHECK(co_await holds(most, static_cast<std::uint16_t>(n)));
    CHECK(co_await holds(mean, static_cast<std::int16_t>(all / n)));
    CHECK(co_await holds(both, n == 1));
    CHECK(co_await holds(either, true));
    CHECK(co_await holds(bits, (1 << (n + 1)) - 2));
    CHECK(co_await holds(flipped, n % 2 == 0 ? std::byte{0} : std::byte{1}));
    CHECK(co_await holds(product, powers));
    CHECK(co_await holds(scaled, complex(halves, 0)));
    const std::int16_t kind = n == 1 ? 0 : 7;
    CHECK(co_await holds(own, place{1.0 * n, all, kind}));
    CHECK(co_await holds(lowest, cohort::located<float>{-1.0F * static_cast<float>(n), n}));
    co_await coord.shutdown();
  });
}

TEST_CASE("a reduction of the host's goes to a root, in parts, out of place and in large pieces") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend(with_host_path()));
    const device::stream on;
    const int ranks = world.size();
    const auto n = static_cast<std::size_t>(ranks);
    const int root = ranks - 1;
    const bool is_root = world.rank() == root;
    const auto mine = static_cast<std::int16_t>(world.rank() + 1);
    const auto all = static_cast<std::int16_t>(ranks * (ranks + 1) / 2);

    auto rooted = co_await filled(on, 50, mine);
    co_await coord.reduce("rooted", rooted, op::sum, root);
    CHECK(co_await holds(rooted, is_root ? all : mine));

    auto from = co_await filled(on, 10, mine);
    device::vector<std::int16_t> to(10, on);
    co_await coord.all_reduce("to", from, to, op::sum);
    CHECK(co_await holds(to, all));
    CHECK(co_await holds(from, mine));

    // Every element says where it was, so a part of another rank would be seen.
    for (const std::size_t count : {3 * n, 3 * n + 1, std::size_t{1}}) {
      device::vector<std::uint16_t> whole(count, on);
      device::pinned_vector<std::uint16_t> numbers(count, on);
      std::iota(numbers.begin(), numbers.end(), std::uint16_t{0});
      device::copy(on, numbers, whole);
      auto part =
          co_await coord.reduce_scatter("parts of " + std::to_string(count), whole, op::sum);
      std::size_t first = 0;
      for (int r = 0; r < world.rank(); ++r) first += cohort::part_of(count, r, ranks);
      std::vector<std::uint16_t> wanted;
      for (std::size_t i = 0; i < part.size(); ++i) {
        wanted.push_back(static_cast<std::uint16_t>((first + i) * n));
      }
      CHECK(part.size() == cohort::part_of(count, world.rank(), ranks));
      CHECK(co_await now_in(part) == wanted);
    }

    // More than the pinned memory between, with small ones before and behind it.
    constexpr std::size_t many = (std::size_t{5} << 20U) + 3;
    std::vector<device::vector<std::int16_t>> packed;
    cohort::bundle members("large");
    for (const std::size_t size : {std::size_t{3}, many, std::size_t{5}}) {
      packed.push_back(co_await filled(on, size, mine));
    }
    for (std::size_t i = 0; i < packed.size(); ++i) members.add(std::to_string(i), packed[i]);
    co_await coord.grouped_all_reduce(std::move(members), op::sum);
    for (const auto& each : packed) CHECK(co_await holds(each, all));
    device::vector<std::int16_t> nothing(0, on);
    co_await coord.all_reduce("nothing", nothing, op::sum);
    co_await coord.shutdown();
  });
}

TEST_CASE("operations of the host's keep their place among those of NCCL") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    for (const bool hierarchical : {false, true}) {
      auto options = with_host_path();
      options.hierarchical = hierarchical;
      const int n = world.size();
      options.node = hierarchical ? world.rank() * 2 / n : -1;
      cohort::coordinator coord(world, nccl::backend(options));
      constexpr std::size_t streams = 6;
      const std::vector<device::stream> on(streams);
      std::vector<device::vector<float>> floats;
      std::vector<device::vector<std::int16_t>> shorts;
      std::vector<device::pinned_vector<float>> float_before;
      std::vector<device::pinned_vector<std::int16_t>> short_before;
      std::vector<device::pinned_vector<std::int16_t>> after;
      for (std::size_t i = 0; i < streams; ++i) {
        floats.emplace_back(100 + i, on[i]);
        shorts.emplace_back(200 + i, on[i]);
        float_before.emplace_back(100 + i, on[i]);
        short_before.emplace_back(200 + i, on[i]);
        after.emplace_back(200 + i, on[i]);
      }
      for (int step = 0; step < 4; ++step) {
        std::deque<ending> ends;
        for (std::size_t k = 0; k < streams; ++k) {
          const std::size_t i = (k + static_cast<std::size_t>(5 * world.rank() + step)) % streams;
          write(on[i], float_before[i], floats[i], static_cast<float>(step + 1));
          write(on[i], short_before[i], shorts[i], static_cast<std::int16_t>(step + 1));
          cohort::call_options queued;
          queued.on = on[i];
          queued.ends = cohort::until::enqueued;
          coord.all_reduce("f" + std::to_string(i), floats[i], op::sum, queued,
                           ends.emplace_back().handler());
          coord.all_reduce("s" + std::to_string(i), shorts[i], op::sum, queued,
                           ends.emplace_back().handler());
        }
        CHECK(co_await soon([&] { return all_over(ends); }));
        CHECK(all_well(ends));
        for (std::size_t i = 0; i < streams; ++i) {
          device::copy(on[i], shorts[i], after[i]);  // nobody has waited for the sum
        }
        for (std::size_t i = 0; i < streams; ++i) {
          auto copied = device::done(on[i]);
          co_await std::move(copied);
          const auto wanted = static_cast<std::int16_t>((step + 1) * n);
          CHECK(std::count(after[i].begin(), after[i].end(), wanted) ==
                static_cast<std::ptrdiff_t>(after[i].size()));
          CHECK(co_await holds(floats[i], static_cast<float>((step + 1) * n)));
        }
      }
      CHECK_DOUBLE((fake_nccl::calls("ncclReduce") != 0) == (hierarchical && n > 1));
      co_await coord.shutdown();
    }
  });
}

TEST_CASE("bundles and groups of types that NCCL lacks go through the host") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend(with_host_path()));
    const device::stream on;
    const int n = world.size();
    auto a = co_await filled(on, 13, std::int16_t{2});
    auto b = co_await filled(on, 1000, 1.5F);
    auto c = co_await filled(on, 1, std::uint64_t{5});
    cohort::bundle mixed("mixed");
    mixed.add("a", a).add("b", b).add("c", c);
    co_await coord.grouped_all_reduce(std::move(mixed), op::sum);
    CHECK(co_await holds(a, static_cast<std::int16_t>(2 * n)));
    CHECK(co_await holds(b, 1.5F * static_cast<float>(n)));
    CHECK(co_await holds(c, static_cast<std::uint64_t>(5 * n)));

    auto flags = co_await filled(on, 20, world.rank() == 0);
    auto group =
        co_await coord.make_persistent(cohort::bundle("flags").add("f", flags), op::logical_or);
    for (int step = 0; step < 3; ++step) co_await group.start();
    CHECK(co_await holds(flags, true));
    ending end;
    group.capture(end.handler());
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.code() == cohort::errc::not_supported);
    INFO(end.text());
    CHECK(has(end.text(), "capture of persistent group 'flags' of bool"));
    CHECK(has(end.text(), "MPI's part cannot be captured"));
    co_await group.start();
    co_await coord.shutdown();
  });
}

TEST_CASE("ranks that have joined bring neutral elements to reductions of the host's") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend(with_host_path()));
    const device::stream on;
    const int n = world.size();
    const bool joins = n > 1 && world.rank() == n - 1;
    const int active = n > 1 ? n - 1 : 1;
    if (!joins) {
      auto least = co_await filled(on, 7, std::int16_t{5});
      auto most = co_await filled(on, 7, std::int16_t{-5});
      auto mean = co_await filled(on, 7, std::int16_t{-9});
      auto all = co_await filled(on, 7, true);
      auto bits = co_await filled(on, 7, 12);
      auto product = co_await filled(on, 7, std::complex<float>(0, 1));
      std::deque<ending> ends;
      const auto next = [&] { return ends.emplace_back().handler(); };
      coord.all_reduce("least", least, op::min, next());
      coord.all_reduce("most", most, op::max, next());
      coord.all_reduce("mean", mean, op::average, next());
      coord.all_reduce("all", all, op::logical_and, next());
      coord.all_reduce("bits", bits, op::bit_and, next());
      coord.all_reduce("product", product, op::product, next());
      CHECK(co_await soon([&] { return all_over(ends); }));
      CHECK(all_well(ends));
      CHECK(co_await holds(least, std::int16_t{5}));
      CHECK(co_await holds(most, std::int16_t{-5}));
      CHECK(co_await holds(mean, std::int16_t{-9}));
      CHECK(co_await holds(all, true));
      CHECK(co_await holds(bits, 12));
      std::complex<float> power(1, 0);
      for (int i = 0; i < active; ++i) power *= std::complex<float>(0, 1);
      CHECK(co_await holds(product, power));
    }
    co_await coord.join();
    co_await coord.shutdown();
  });
}

TEST_CASE("process sets reduce on the host over their own ranks") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend(with_host_path()));
    const device::stream on;
    std::vector<int> members;
    for (int rank = 0; rank < world.size(); rank += 2) members.push_back(rank);
    auto set = co_await coord.add_process_set(cohort::ranks(members));
    auto everywhere = co_await filled(on, 4, std::int16_t{1});
    std::deque<ending> ends;
    coord.all_reduce("of all", everywhere, op::sum, ends.emplace_back().handler());
    if (set) {
      auto values = co_await filled(on, 4, std::int16_t{1});
      co_await set.all_reduce("of some", values, op::sum);
      CHECK(co_await holds(values, static_cast<std::int16_t>(members.size())));
    }
    CHECK(co_await soon([&] { return all_over(ends); }));
    CHECK(all_well(ends));
    CHECK(co_await holds(everywhere, static_cast<std::int16_t>(world.size())));
    co_await coord.shutdown();
  });
}

TEST_CASE("without that option what NCCL lacks is refused on every rank by name") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const device::stream on;
    auto shorts = co_await filled(on, 4, std::int16_t{1});
    auto bits = co_await filled(on, 4, 1);
    auto product = co_await filled(on, 4, std::complex<float>(1, 0));
    std::deque<ending> ends;
    coord.all_reduce("shorts", shorts, op::sum, ends.emplace_back().handler());
    coord.all_reduce("bits", bits, op::bit_and, ends.emplace_back().handler());
    coord.reduce("product", product, op::product, 0, ends.emplace_back().handler());
    CHECK(co_await soon([&] { return all_over(ends); }));
    for (const ending& one : ends) {
      INFO(one.text());
      CHECK(one.code() == cohort::errc::not_supported);
      CHECK(has(one.text(), "rank " + std::to_string(world.rank()) + ": "));
    }
    CHECK(has(ends[0].text(), "all_reduce 'shorts' of int16 in device memory: NCCL reduces no"));
    CHECK(has(ends[1].text(), "all_reduce 'bits' of int32 in device memory: devices have no bit"));
    CHECK(has(ends[2].text(), "sum and average for complex numbers only"));
    CHECK(co_await code_of(coord.make_persistent(cohort::bundle("group").add("b", bits),
                                                 op::bit_or)) == cohort::errc::not_supported);
    co_await sums(coord, "after");
    co_await coord.shutdown();
  });
}

TEST_CASE("the option of the host's path is the same on all ranks, or a mismatch") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    nccl::backend_options options;
    options.host_path = world.rank() == 1;
    cohort::coordinator coord(world, nccl::backend(options));
    auto failed = co_await caught<cohort::mismatch_error>(coord.barrier("any"));
    REQUIRE(failed);
    CHECK(has(failed->what(), "backend.host_path"));
    co_await coord.shutdown();
  });
}

TEST_CASE("device memory of any trivially copyable type is moved as bytes") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const device::stream on;
    const int ranks = world.size();
    const int rank = world.rank();
    const auto n = static_cast<std::size_t>(ranks);
    const int root = ranks - 1;
    const auto of = [](int r) { return place{0.5 * r, r, static_cast<std::int16_t>(-r)}; };
    std::vector<place> each;
    for (int r = 0; r < ranks; ++r) each.insert(each.end(), 2, of(r));

    auto told = co_await filled(on, 5, of(rank));
    co_await coord.broadcast("broadcast", told, root);
    CHECK(co_await holds(told, of(root)));

    auto mine = co_await filled(on, 2, of(rank));
    auto all = co_await coord.all_gather("gather", mine);
    CHECK(co_await now_in(all) == each);

    auto parts = co_await filled(on, 2 * n, of(rank));
    auto [arrived, counts] = co_await coord.all_to_all("exchange", parts, std::vector<int>(n, 2));
    CHECK(counts == std::vector<std::size_t>(n, 2));
    CHECK(co_await now_in(arrived) == each);

    auto at_root = co_await coord.gather("to root", mine, root);
    if (rank == root) CHECK(co_await now_in(at_root) == each);

    auto whole = co_await filled(on, rank == root ? 2 * n : 0, of(7));
    device::vector<place> share(2, on);
    co_await coord.scatter("from root", whole, share, root);
    CHECK(co_await holds(share, of(7)));

    if (ranks > 1 && rank < 2) {
      auto message = co_await filled(on, 3, of(10 + rank));
      if (rank == 0) co_await coord.send("message", message, 1);
      if (rank == 1) co_await coord.recv("message", message, 0);
      CHECK(co_await holds(message, of(10)));
    }
    co_await coord.shutdown();
  });
}
