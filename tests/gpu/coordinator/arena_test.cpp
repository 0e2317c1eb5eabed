// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Fusion arenas: what lies side by side in one is reduced where it is.

#include "support.hpp"

#include <cohort/nccl/extra/fusion_arena.hpp>
#include <cohort/progress/deadline.hpp>

#include <array>
#include <limits>
#include <thread>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::coordinator;
using cohort::errc;

/// What of the doubles' calls costs something, since it was made.
class cost {
 public:
  [[nodiscard]] std::uint64_t reductions() const {
    return fake_nccl::calls("ncclAllReduce") - reductions_;
  }
  [[nodiscard]] std::uint64_t broadcasts() const {
    return fake_nccl::calls("ncclBroadcast") - broadcasts_;
  }
  /// Kernels that pack included.
  [[nodiscard]] std::uint64_t copies() const { return copies_now() - copies_; }
  /// Collectives on registered memory.
  [[nodiscard]] std::uint64_t in_place() const {
    return fake_nccl::calls_in_registered_memory() - in_place_;
  }

 private:
  static std::uint64_t copies_now() {
    return fake_gpu::calls("cudaMemcpyAsync") + fake_gpu::calls("cudaMemcpyBatchAsync") +
           fake_gpu::calls("cuLaunchKernel");
  }
  std::uint64_t reductions_ = fake_nccl::calls("ncclAllReduce");
  std::uint64_t broadcasts_ = fake_nccl::calls("ncclBroadcast");
  std::uint64_t copies_ = copies_now();
  std::uint64_t in_place_ = fake_nccl::calls_in_registered_memory();
};

template <class T>
asio::awaitable<void> give(device::stream on, device::span<T> to, T value) {
  auto from = co_await filled<T>(on, to.size(), value);
  device::copy(on, from, to);
  co_await device::done(on);
}

template <class T>
asio::awaitable<void> expect(device::stream on, device::span<T> of, T value) {
  device::pinned_vector<T> seen(of.size(), on);
  device::copy(on, of, seen);
  co_await device::done(on);
  INFO("elements: " << seen.size() << ", the first: " << static_cast<double>(seen[0]) << ", not "
                    << static_cast<double>(value));
  CHECK(std::all_of(seen.begin(), seen.end(),
                    [&](T x) { return static_cast<double>(x) == static_cast<double>(value); }));
}

[[nodiscard]] float sum_over(int ranks) { return static_cast<float>(ranks * (ranks + 1) / 2); }

/// Three tensors one behind the other in an arena, with padding between them.
struct three {
  nccl::fusion_arena arena;
  device::stream on;
  std::array<device::span<float>, 3> parts;

  explicit three(nccl::fusion_arena in)
      : arena(std::move(in)),
        parts{arena.allocate<float>(100, on), arena.allocate<float>(7, on),
              arena.allocate<float>(1000, on)} {}
  asio::awaitable<void> give_all(float value) {
    for (device::span<float> one : parts) co_await give(on, one, value);
  }
  asio::awaitable<void> expect_all(float value) {
    for (device::span<float> one : parts) co_await expect(on, one, value);
  }
  [[nodiscard]] cohort::bundle bundle() {
    cohort::bundle made("model");
    made.add("a", parts[0]).add("b", parts[1]).add("c", parts[2]);
    return made;
  }
};

}  // namespace

DOUBLE_TEST_CASE("tensors side by side in a fusion arena are reduced by one call, without a copy") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    auto arena = co_await nccl::make_fusion_arena(coord, 1 << 16);
    CHECK(arena);
    CHECK(arena.registered());
    CHECK(arena.bytes() == 1 << 16);
    CHECK(fake_nccl::calls("ncclMemAlloc") == 1);
    CHECK(fake_nccl::calls("ncclCommRegister") == 1);
    three all(std::move(arena));
    CHECK(all.arena.allocated() == 448 + 64 + 4032);
    CHECK_THROWS_AS(all.arena.allocate<float>(1 << 14), cohort::error);
    CHECK_THROWS_AS(all.arena.allocate<float>(std::numeric_limits<std::size_t>::max()),
                    cohort::error);
    CHECK_THROWS_AS(nccl::fusion_arena().allocate<float>(1), cohort::error);
    // What lies between them, and is nobody's, does not matter.
    const device::span<float> between(all.parts[0].data() + 100, 12, all.on);
    co_await give(all.on, between, std::numeric_limits<float>::quiet_NaN());
    co_await all.give_all(static_cast<float>(world.rank() + 1));
    {
      const cost of;
      co_await coord.grouped_all_reduce(all.bundle(), op::sum);
      CHECK(of.reductions() == 1);
      CHECK(of.copies() == 0);
      CHECK(of.in_place() == 1);
    }
    co_await all.expect_all(sum_over(world.size()));
    co_await all.give_all(static_cast<float>(world.rank()));
    cohort::bundle backwards("backwards");
    backwards.add("c", all.parts[2]).add("a", all.parts[0]).add("b", all.parts[1]);
    const cost of;
    co_await coord.grouped_broadcast(std::move(backwards), world.size() - 1);
    CHECK(of.broadcasts() == 1);
    CHECK(of.copies() == 0);
    CHECK(of.in_place() == 1);
    co_await all.expect_all(static_cast<float>(world.size() - 1));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE(
    "named tensors that travel together in a fusion arena are not copied, in either order") {
  const bool backwards = GENERATE(false, true);
  on_gpus([backwards](communicator world) -> asio::awaitable<void> {
    cohort::coordinator_options options;
    options.frozen_plan = {{"a", "b", "c"}};
    if (backwards) options.frozen_plan = {{"c", "b", "a"}};
    coordinator coord(world, nccl::backend(), options);
    three all(co_await nccl::make_fusion_arena(coord, 1 << 16));
    for (int step = 1; step < 4; ++step) {
      co_await all.give_all(static_cast<float>((world.rank() + 1) * step));
      const cost of;
      std::deque<ending> ends;
      for (std::size_t i = 0; i < 3; ++i) {
        const std::size_t k = (i + static_cast<std::size_t>(world.rank() + step)) % 3;
        const char* const names[] = {"a", "b", "c"};
        coord.all_reduce(names[k], all.parts[k], op::sum, ends.emplace_back().handler());
      }
      CHECK(co_await soon([&] { return all_over(ends); }));
      for (const ending& one : ends) CHECK(one.text().empty());
      CHECK(of.reductions() == 1);
      CHECK(of.copies() == 0);
      co_await all.expect_all(sum_over(world.size()) * static_cast<float>(step));
    }
    // One alone, and larger than what is packed.
    co_await all.give_all(1.0F);
    auto large = all.arena.allocate<float>(3000, all.on);
    co_await give(all.on, large, 2.0F);
    const cost of;
    co_await coord.all_reduce("large", large, op::sum);
    co_await coord.broadcast("alone", all.parts[1], 0);
    CHECK(of.copies() == 0);
    CHECK(of.in_place() == 2);
    co_await expect(all.on, large, static_cast<float>(2 * world.size()));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("small and large tensors side by side in a fusion arena are one call") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    nccl::backend_options options;
    options.pack_below = 256;  // bytes
    coordinator coord(world, nccl::backend(options));
    three all(co_await nccl::make_fusion_arena(coord, 1 << 16));
    co_await all.give_all(1.0F);
    const cost of;
    co_await coord.grouped_all_reduce(all.bundle(), op::sum);
    CHECK(of.reductions() == 1);
    CHECK(of.copies() == 0);
    co_await all.expect_all(static_cast<float>(world.size()));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("all reductions and factors are right in a fusion arena") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    three all(co_await nccl::make_fusion_arena(coord, 1 << 16));
    const int n = world.size();
    const auto mine = static_cast<float>(world.rank() + 1);
    const cost of;
    co_await all.give_all(mine);
    const std::uint64_t given = of.copies();
    co_await coord.grouped_all_reduce(all.bundle(), op::min);
    CHECK(of.copies() == given);
    co_await all.expect_all(1.0F);
    co_await all.give_all(mine);
    co_await coord.grouped_all_reduce(all.bundle(), op::max);
    co_await all.expect_all(static_cast<float>(n));
    co_await all.give_all(2.0F);
    co_await coord.grouped_all_reduce(all.bundle(), op::product);
    co_await all.expect_all(static_cast<float>(1 << n));
    co_await all.give_all(4.0F);
    co_await coord.grouped_all_reduce(all.bundle(), op::average);
    co_await all.expect_all(4.0F);
    cohort::call_options scaled;
    scaled.prescale = 4;
    scaled.postscale = 0.5;
    co_await all.give_all(1.0F);
    {
      const cost now;
      co_await coord.grouped_all_reduce(all.bundle(), op::sum, scaled);  // NCCL multiplies
      CHECK(now.copies() == 0);
      CHECK(now.in_place() == 1);
    }
    co_await all.expect_all(static_cast<float>(2 * n));
    co_await all.give_all(mine);
    {
      const cost now;
      co_await coord.grouped_all_reduce(all.bundle(), op::max, scaled);  // the host multiplies
      CHECK(now.in_place() == 0);
    }
    co_await all.expect_all(static_cast<float>(2 * n));
    auto counts = all.arena.allocate<int>(50, all.on);
    auto more = all.arena.allocate<int>(5, all.on);
    co_await give(all.on, counts, -7);
    co_await give(all.on, more, 9);
    cohort::bundle integers("integers");
    integers.add("counts", counts).add("more", more);
    const cost now;
    co_await coord.grouped_all_reduce(std::move(integers), op::average);
    CHECK(now.in_place() == 1);
    CHECK(now.copies() == 0);
    co_await expect(all.on, counts, -7);
    co_await expect(all.on, more, 9);
    // The host multiplies what NCCL has summed in place: the factor is none of 16 bits.
    auto halves = all.arena.allocate<cohort::f16>(40, all.on);
    co_await give(all.on, halves, cohort::f16(1024.0F));
    cohort::call_options small;
    small.postscale = 1.0 / 32768;
    const cost last;
    co_await coord.all_reduce("halves", halves, op::sum, small);
    CHECK(last.in_place() == 1);
    co_await expect(all.on, halves, cohort::f16(static_cast<float>(n) / 32));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("what does not lie side by side in a fusion arena is packed") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    three all(co_await nccl::make_fusion_arena(coord, 1 << 16));
    auto second = co_await nccl::make_fusion_arena(coord, 1 << 14);
    auto elsewhere = co_await filled(all.on, 10, 1.0F);
    // At the offset that follows the last tensor of the first arena.
    CHECK(second.allocate<std::byte>(all.arena.allocated()).size() == all.arena.allocated());
    auto other = second.allocate<float>(20, all.on);
    co_await give(all.on, other, 1.0F);
    const auto is_packed = [&](cohort::bundle members) -> asio::awaitable<void> {
      const cost of;
      co_await coord.grouped_all_reduce(std::move(members), op::sum);
      CHECK(of.reductions() == 1);
      CHECK(of.copies() > 0);
      CHECK(of.in_place() == 0);
    };
    const auto n = static_cast<float>(world.size());
    co_await all.give_all(1.0F);
    cohort::bundle gap("gap");
    gap.add("a", all.parts[0]).add("c", all.parts[2]);
    co_await is_packed(std::move(gap));
    co_await expect(all.on, all.parts[0], n);
    co_await expect(all.on, all.parts[1], 1.0F);
    co_await expect(all.on, all.parts[2], n);
    co_await all.give_all(1.0F);
    cohort::bundle mixed("mixed");
    mixed.add("a", all.parts[0]).add("v", elsewhere).add("b", all.parts[1]);
    co_await is_packed(std::move(mixed));
    co_await expect(all.on, all.parts[0], n);
    co_await expect(all.on, all.parts[1], n);
    CHECK(co_await now_in(elsewhere) == std::vector<float>(10, n));
    co_await all.give_all(1.0F);
    cohort::bundle both("both");
    both.add("c", all.parts[2]).add("other", other);
    co_await is_packed(std::move(both));
    co_await expect(all.on, all.parts[2], n);
    co_await expect(all.on, other, n);
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("parts of one allocation lie side by side only where nothing is between") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    auto arena = co_await nccl::make_fusion_arena(coord, 1 << 12);
    device::stream on;
    auto whole = arena.allocate<float>(32, on);
    auto behind = arena.allocate<float>(8, on);
    auto head = whole.subspan(0, 25);
    auto tail = whole.subspan(25, 7);  // in the same 64 bytes as the end of the head
    const auto n = static_cast<float>(world.size());
    co_await give(on, whole, 1.0F);
    co_await give(on, behind, 1.0F);
    {
      cohort::bundle adjacent("adjacent");
      adjacent.add("tail", tail).add("behind", behind).add("head", head);
      const cost of;
      co_await coord.grouped_all_reduce(std::move(adjacent), op::sum);
      CHECK(of.reductions() == 1);
      CHECK(of.copies() == 0);
    }
    co_await expect(on, whole, n);
    co_await expect(on, behind, n);
    co_await give(on, whole, 1.0F);
    co_await give(on, behind, 1.0F);
    {
      cohort::bundle apart("apart");
      apart.add("head", head).add("behind", behind);
      const cost of;
      co_await coord.grouped_all_reduce(std::move(apart), op::sum);
      CHECK(of.in_place() == 0);
    }
    co_await expect(on, head, n);
    co_await expect(on, tail, 1.0F);
    co_await expect(on, behind, n);
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("other verbs copy what lies in a fusion arena, and NCCL does not see it") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    auto arena = co_await nccl::make_fusion_arena(coord, 1 << 14);
    device::stream on;
    const int n = world.size();
    const auto ranks = static_cast<std::size_t>(n);
    auto all = arena.allocate<int>(10 * ranks, on);
    auto one = arena.allocate<int>(10, on);
    const int mine = world.rank() + 1;
    const int sum = n * (n + 1) / 2;
    const cost of;
    co_await give(on, one, mine);
    co_await give(on, all, mine);
    co_await coord.reduce("reduce", one, op::sum, 0);
    co_await expect(on, one, world.rank() == 0 ? sum : mine);
    auto gathered = co_await coord.all_gather("all_gather", all);
    CHECK(gathered.size() == 10 * ranks * ranks);
    CHECK((co_await now_in(gathered)).back() == n);
    auto part = co_await coord.reduce_scatter("reduce_scatter", all, op::sum);
    CHECK(co_await now_in(part) == std::vector<int>(10, sum));
    auto exchanged = co_await coord.all_to_all("all_to_all", all, std::vector<int>(ranks, 10));
    device::vector<int>& come = std::get<0>(exchanged);
    CHECK((co_await now_in(come)).back() == n);
    co_await coord.scatter("scatter", all, one, 0);
    co_await expect(on, one, 1);
    auto beside = co_await filled(on, 10, 0);
    co_await coord.all_reduce("out of place", one, beside, op::sum);
    CHECK(co_await now_in(beside) == std::vector<int>(10, n));
    co_await coord.all_reduce("into the arena", beside, one, op::max);
    co_await expect(on, one, n);
    if (n > 1) {
      co_await give(on, one, mine);
      if (world.rank() == 0) co_await coord.send("message", one, n - 1);
      if (world.rank() == n - 1) co_await coord.recv("message", one, 0);
      co_await expect(on, one, world.rank() == n - 1 ? 1 : mine);
    }
    CHECK(of.in_place() == 0);
    co_await coord.shutdown();
  });
}

TEST_CASE("tensors at other offsets of a fusion arena are a mismatch that names the place") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    coordinator coord(world, nccl::backend());
    auto arena = co_await nccl::make_fusion_arena(coord, 1 << 12);
    device::stream on;
    auto first = arena.allocate<float>(10, on);
    auto second = arena.allocate<float>(10, on);
    auto beside = co_await filled(on, 10, 1.0F);
    co_await give(on, first, 1.0F);
    co_await give(on, second, 1.0F);
    const bool is_last = world.rank() == world.size() - 1;
    const auto differs = [](const ending& one) {
      INFO(one.text());
      CHECK(one.code() == errc::cross_rank_mismatch);
      CHECK(has(one.text(), "'w': place in a fusion arena differs: "));
      CHECK(has(one.text(), "+0"));
      CHECK(has(one.text(), "on rank"));
    };
    ending apart;
    coord.all_reduce("w", is_last ? second : first, op::sum, apart.handler());
    CHECK(co_await soon([&] { return apart.over; }));
    differs(apart);
    CHECK(has(apart.text(), "+64"));
    ending outside;
    if (is_last) {
      coord.all_reduce("w", beside, op::sum, outside.handler());
    } else {
      coord.all_reduce("w", first, op::sum, outside.handler());
    }
    CHECK(co_await soon([&] { return outside.over; }));
    differs(outside);
    CHECK(has(outside.text(), "none on rank"));
    ending group;
    cohort::bundle members("group");
    members.add("w", is_last ? second : first);
    coord.make_persistent(std::move(members), op::sum, cohort::call_options(), group.handler());
    CHECK(co_await soon([&] { return group.over; }));
    CHECK(has(group.text(), "place in a fusion arena differs: "));
    co_await coord.all_reduce("w", first, op::sum);  // the next one of that name
    co_await expect(on, first, static_cast<float>(world.size()));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("ranks that have joined bring neutral elements, and keep what is in their arena") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    three all(co_await nccl::make_fusion_arena(coord, 1 << 16));
    const int n = world.size();
    const bool joins = n > 1 && world.rank() == n - 1;
    const int active = n > 1 ? n - 1 : 1;
    co_await all.give_all(joins ? 100.0F : -3.0F);
    if (!joins) {
      const cost of;
      co_await coord.grouped_all_reduce(all.bundle(), op::max);
      CHECK(of.in_place() == (n > 1 ? 0U : 1U));
      co_await all.expect_all(-3.0F);
      co_await coord.grouped_all_reduce(all.bundle(), op::sum);
      co_await all.expect_all(static_cast<float>(-3 * active));
      co_await coord.all_reduce("alone", all.parts[2], op::average);
      co_await expect(all.on, all.parts[2], static_cast<float>(-3 * active));
      co_await coord.grouped_broadcast(all.bundle(), 0);
    }
    co_await coord.join();
    if (joins) co_await all.expect_all(100.0F);
    co_await all.give_all(1.0F);
    const cost of;
    co_await coord.grouped_all_reduce(all.bundle(), op::sum);  // all again
    CHECK(of.copies() == 0);
    CHECK(of.in_place() == 1);
    co_await all.expect_all(static_cast<float>(n));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("process sets made before and after a fusion arena reduce in it") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    std::vector<int> listed;
    for (int rank = 0; rank < (world.size() + 1) / 2; ++rank) listed.push_back(rank);
    const bool is_in = world.rank() < static_cast<int>(listed.size());
    auto before = co_await coord.add_process_set(cohort::ranks(listed));
    three all(co_await nccl::make_fusion_arena(coord, 1 << 16));
    CHECK(fake_nccl::calls("ncclCommRegister") == (is_in ? 2U : 1U));
    auto after = co_await coord.add_process_set(cohort::ranks(listed));
    CHECK(fake_nccl::calls("ncclCommRegister") == (is_in ? 3U : 1U));
    co_await all.give_all(1.0F);
    std::vector<cohort::process_set> sets{before, after};
    for (const cohort::process_set& set : sets) {
      if (!is_in) continue;
      const cost of;
      co_await set.grouped_all_reduce(all.bundle(), op::sum);
      CHECK(of.reductions() == 1);
      CHECK(of.copies() == 0);
      CHECK(of.in_place() == 1);
    }
    const auto members = static_cast<float>(listed.size());
    co_await all.expect_all(is_in ? members * members : 1.0F);
    sets.clear();
    before = {};  // its communicator ends, the memory stays
    co_await all.give_all(1.0F);
    if (is_in) co_await after.grouped_all_reduce(all.bundle(), op::max);
    co_await coord.grouped_all_reduce(all.bundle(), op::sum);
    co_await all.expect_all(static_cast<float>(world.size()));
    all.arena = {};
    CHECK(co_await soon([] { return fake_nccl::calls("ncclMemFree") == 1; }));
    auto last = co_await coord.add_process_set(cohort::ranks(listed));  // nothing to register
    if (is_in) co_await last.barrier("there");
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE(
    "a persistent group in a fusion arena starts and replays without copies, and keeps it") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    three all(co_await nccl::make_fusion_arena(coord, 1 << 16));
    auto group = co_await coord.make_persistent(all.bundle(), op::sum);
    all.arena = {};  // the group has it
    const auto value = static_cast<float>(world.rank() + 1);
    co_await all.give_all(value);
    {
      const cost of;
      co_await group.start();
      CHECK(of.reductions() == 1);
      CHECK(of.copies() == 0);
      CHECK(of.in_place() == 1);
    }
    co_await all.expect_all(sum_over(world.size()));
    {
      const cost of;
      auto captured = co_await group.capture();
      CHECK(of.reductions() == 1);
      CHECK(of.copies() == 0);
      for (int step = 1; step < 4; ++step) {
        co_await all.give_all(value * static_cast<float>(step));
        const cost now;
        co_await group.replay(captured);
        CHECK(now.copies() == 0);
        CHECK(now.reductions() == 0);
        co_await all.expect_all(sum_over(world.size()) * static_cast<float>(step));
      }
    }
    CHECK(fake_nccl::calls("ncclMemFree") == 0);
    co_await group.remove();
    group = {};
    CHECK(co_await soon([] { return fake_nccl::calls("ncclMemFree") == 1; }));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a process set that has ended gives back what its groups keep of a fusion arena") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    three all(co_await nccl::make_fusion_arena(coord, 1 << 16));
    const auto set = co_await coord.add_process_set(cohort::ranks::all(world.size()));
    const auto group = co_await set.make_persistent(all.bundle(), op::sum);
    all.arena = {};  // the group has it
    co_await all.give_all(static_cast<float>(world.rank() + 1));
    co_await group.start();
    co_await all.expect_all(sum_over(world.size()));
    CHECK(fake_nccl::calls("ncclMemFree") == 0);
    co_await set.remove();
    CHECK(co_await soon([] { return fake_nccl::calls("ncclMemFree") == 1; }));  // there is a handle
    CHECK(co_await code_of(group.start()) == errc::not_accepting);
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE(
    "a fusion arena may go while operations are in flight, and after its coordinator") {
  const bool outlives = GENERATE(false, true);
  on_gpus([outlives](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    three all(co_await nccl::make_fusion_arena(coord, 1 << 16));
    co_await all.give_all(1.0F);
    const device::stream domain = domain_here(world);
    fake_gpu::hold(domain.get());
    ending end;
    coord.grouped_all_reduce(all.bundle(), op::sum, end.handler());
    if (!outlives) all.arena = {};
    co_await pause(20ms);
    co_await meet(world);  // the loop goes on
    CHECK(fake_nccl::calls("ncclMemFree") == 0);
    CHECK(!end.over);
    co_await meet(world);
    fake_gpu::release(domain.get());
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.text().empty());
    if (outlives) {
      co_await coord.shutdown();
      coord = {};
      CHECK(co_await soon([] { return fake_nccl::live_communicators() == 0; }));
      co_await all.expect_all(static_cast<float>(world.size()));
      CHECK(fake_nccl::calls("ncclMemFree") == 0);
      all.arena = {};
    }
    CHECK(co_await soon([] { return fake_nccl::calls("ncclMemFree") == 1; }));
    if (!outlives) CHECK(fake_nccl::calls("ncclCommDeregister") == 1);
  });
}

DOUBLE_TEST_CASE("a fusion arena is made when the device is drained, and does not stop the loop") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto coord = co_await opened(world);
    device::stream on;
    auto values = co_await filled(on, 100, 1.0F);
    auto others = co_await filled(on, 100, 1.0F);
    const device::stream domain = domain_here(world);
    co_await meet(world);
    fake_gpu::hold(domain.get());
    ending ahead;
    ending behind;
    std::optional<nccl::fusion_arena> arena;
    coord.all_reduce("ahead", values, op::sum, ahead.handler());
    CHECK(co_await soon([&] { return is_started(coord, "ahead"); }));
    ending made;
    nccl::make_fusion_arena(coord, 4096, [&](std::exception_ptr why, nccl::fusion_arena its) {
      made.why = why;
      made.over = true;
      arena = std::move(its);
    });
    CHECK(co_await soon([&] {
      const auto all = coord.pending();
      return all.size() == 2 && all.back().started;
    }));
    coord.all_reduce("behind", others, op::sum, behind.handler());
    co_await pause(20ms);
    co_await meet(world);
    CHECK(fake_nccl::calls("ncclMemAlloc") == 0);
    CHECK(!made.over);
    CHECK(!behind.over);
    co_await meet(world);
    fake_gpu::release(domain.get());
    CHECK(co_await soon([&] { return ahead.over && made.over && behind.over; }));
    CHECK(ahead.text().empty());
    CHECK(made.text().empty());
    CHECK(behind.text().empty());
    CHECK(arena->registered());
    arena.reset();
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a fusion arena that one rank cannot have is one error on all ranks") {
  const char* const call = GENERATE("ncclMemAlloc", "ncclCommRegister");
  on_gpus([call](communicator world) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    auto coord = co_await opened(world);
    if (world.rank() == last) fake_nccl::fail_next(call, ncclSystemError);
    std::optional<cohort::rank_error> failed;
    try {
      auto arena = co_await nccl::make_fusion_arena(coord, 4096);
    } catch (const cohort::rank_error& why) {
      failed = why;
    }
    REQUIRE(failed);
    CHECK(failed->code() == errc::aborted);
    CHECK(failed->ranks() == std::vector<int>{last});
    CHECK(has(failed->what(), call));
    const bool has_none = world.rank() == last && has(call, "Alloc");
    const std::uint64_t freed = has_none ? 0 : 1;
    CHECK(co_await soon([&] { return fake_nccl::calls("ncclMemFree") == freed; }));
    auto arena = co_await nccl::make_fusion_arena(coord, 4096);  // the coordinator goes on
    device::stream on;
    auto part = arena.allocate<float>(10, on);
    co_await give(on, part, 1.0F);
    co_await coord.all_reduce("w", part, op::sum);
    co_await expect(on, part, static_cast<float>(world.size()));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("what is wrong with a fusion arena is said by name") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    ending none;
    nccl::make_fusion_arena(coord, 0, none.handler());
    CHECK(co_await soon([&] { return none.over; }));
    CHECK(has(none.text(), world.size() == 1 ? "an arena of 0 bytes" : "arena"));
    if (world.size() > 1) {
      ending unequal;
      nccl::make_fusion_arena(coord, world.rank() == 0 ? 4096 : 8192, unequal.handler());
      CHECK(co_await soon([&] { return unequal.over; }));
      CHECK(unequal.code() == errc::cross_rank_mismatch);
      CHECK(has(unequal.text(), "shape differs:"));
      CHECK(has(unequal.text(), "4096 on rank 0"));
      CHECK(has(unequal.text(), "nccl::fusion_arena"));
    }
    CHECK(fake_nccl::calls("ncclMemAlloc") == 0);
    co_await coord.shutdown();
    auto again = co_await world.dup();
    coordinator host(again);
    ending refused;
    nccl::make_fusion_arena(host, 4096, refused.handler());
    CHECK(co_await soon([&] { return refused.over; }));
    CHECK(has(refused.text(), "make_fusion_arena"));
    CHECK(has(refused.text(), "no backend for devices"));
    co_await host.shutdown();
  });
}

DOUBLE_TEST_CASE("the making of a fusion arena may be given up before all ranks want it") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    auto coord = co_await opened(world);
    const bool is_last = world.rank() == world.size() - 1;
    if (is_last) {
      auto making = nccl::make_fusion_arena(coord, 4096);
      auto bounded = cohort::with_deadline(std::move(making), 50ms);
      const auto late = co_await caught<std::system_error>(std::move(bounded));
      REQUIRE(late);
      CHECK(late->code() == errc::deadline_exceeded);
    }
    co_await coord.barrier("it has given up");
    if (!is_last) {
      auto making = nccl::make_fusion_arena(coord, 4096);
      const auto withdrawn = co_await caught<cohort::withdrawn_error>(std::move(making));
      CHECK(withdrawn);
    }
    CHECK(fake_nccl::calls("ncclMemAlloc") == 0);
    auto arena = co_await nccl::make_fusion_arena(coord, 4096);
    CHECK(arena.registered());
    arena = {};
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a rank that joins or leaves instead of making a fusion arena is named") {
  const bool joins = GENERATE(false, true);
  on_gpus([joins](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    auto coord = co_await opened(world);
    if (world.rank() == 0) {
      if (joins) {
        co_await coord.join();
      } else {
        co_await coord.shutdown();
      }
      co_return;
    }
    ending end;
    nccl::make_fusion_arena(coord, 4096, end.handler());
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.code() == (joins ? errc::peer_joined : errc::peer_lost));
    CHECK(has(end.text(), "rank 0"));
    CHECK(fake_nccl::calls("ncclMemAlloc") == 0);
    if (joins) {
      co_await coord.join();
    } else {
      co_await coord.shutdown();
    }
  });
}

DOUBLE_TEST_CASE("a coordinator may close, and may fail, while a fusion arena is being made") {
  const bool fails = GENERATE(false, true);
  on_gpus([fails](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto coord = co_await opened(world);
    device::stream on;
    auto values = co_await filled(on, 100, 1.0F);
    const device::stream domain = domain_here(world);
    co_await meet(world);
    fake_gpu::hold(domain.get());
    ending ahead;
    ending made;
    coord.all_reduce("ahead", values, op::sum, ahead.handler());
    nccl::make_fusion_arena(coord, 4096, made.handler());
    CHECK(co_await soon([&] {
      const auto all = coord.pending();
      return all.size() == 2 && all.back().started;
    }));
    co_await meet(world);
    ending closed;
    if (fails) {
      const ncclComm_t comm = native(world);
      if (world.rank() == 0) fake_nccl::set_async_error(comm, ncclSystemError);
      CHECK(co_await soon([&] {
        return log.contains(nccl::make_error(ncclSystemError).message()) || log.contains("remote");
      }));
    } else {
      coord.shutdown(closed.handler());
      co_await pause(20ms);
      CHECK(!closed.over);
    }
    fake_gpu::release(domain.get());
    CHECK(co_await soon([&] { return ahead.over && made.over; }));
    CHECK(ahead.over);
    INFO(made.text());
    CHECK(made.why);
    CHECK(made.is_data_error() == fails);
    if (fails) {
      CHECK(fake_nccl::calls("ncclMemAlloc") == 0);
      co_await coord.shutdown();
    } else {
      CHECK(ahead.text().empty());
      CHECK(co_await soon([&] { return closed.over; }));
      CHECK(co_await soon([] { return fake_nccl::calls("ncclMemFree") == 1; }));
    }
  });
}

DOUBLE_TEST_CASE(
    "who gives up on tensors in a fusion arena keeps them, and no rank reduces without it") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    coordinator coord(world, nccl::backend(), impatient());
    auto arena = co_await nccl::make_fusion_arena(coord, 4096);
    device::stream on;
    auto part = arena.allocate<float>(10, on);
    co_await give(on, part, 7.0F);
    co_await coord.barrier("all have it");
    const cost of;
    ending end;
    if (world.rank() == 0) {  // a long computation, until the others have given up
      for (int rank = 1; rank < world.size(); ++rank) wait_for_sign(rank);
    }
    cohort::call_options limited;
    if (world.rank() != 0) limited.deadline = 50ms;
    coord.all_reduce("w", part, op::sum, limited, end.handler());
    CHECK(co_await soon([&] { return end.over; }));
    INFO(end.text());
    CHECK(end.why);  // no copy can stand in for what is in the arena
    if (world.rank() != 0) let_loop_go(0);
    ending closed;
    coord.shutdown(closed.handler());
    CHECK(co_await soon([&] { return closed.over; }));
    if (world.rank() == 0) co_return;
    CHECK(end.code() == errc::deadline_exceeded);
    CHECK(of.reductions() == 0);
    co_await expect(on, part, 7.0F);
  });
}

DOUBLE_TEST_CASE("a set whose registration fails on one rank is refused to all its ranks") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    coordinator coord(world, nccl::backend());
    auto arena = co_await nccl::make_fusion_arena(coord, 4096);
    const int last = world.size() - 1;
    if (world.rank() == last) fake_nccl::fail_next("ncclCommRegister", ncclSystemError);
    ending end;
    device::stream on;
    auto part = arena.allocate<float>(10, on);
    co_await give(on, part, 1.0F);
    std::vector<int> listed(static_cast<std::size_t>(world.size()));
    std::iota(listed.begin(), listed.end(), 0);
    const auto use = [&]() -> asio::awaitable<void> {
      auto set = co_await coord.add_process_set(cohort::ranks(listed));
      co_await set.all_reduce("w", part, op::sum);
    };
    asio::co_spawn(world.get_executor(), use(), end.handler());
    CHECK(co_await soon([&] { return end.over; }));
    INFO(end.text());
    CHECK(has(end.text(), "the fusion arenas were not registered: rank " + std::to_string(last)));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("before NCCL 2.19, and over nodes, what lies in a fusion arena is packed") {
  const bool hierarchical = GENERATE(false, true);
  on_gpus([hierarchical](communicator world) -> asio::awaitable<void> {
    nccl::backend_options options;
    options.hierarchical = hierarchical;
    options.node = hierarchical ? world.rank() / 2 : -1;
    if (!hierarchical) fake_nccl::set_version(NCCL_VERSION(2, 18, 3));
    coordinator coord(world, nccl::backend(options));
    auto arena = co_await nccl::make_fusion_arena(coord, 1 << 16);
    CHECK(arena);
    CHECK(!arena.registered());
    CHECK(fake_nccl::calls("ncclMemAlloc") == 0);
    CHECK(fake_nccl::calls("ncclCommRegister") == 0);
    three all(std::move(arena));
    co_await all.give_all(1.0F);
    const cost of;
    co_await coord.grouped_all_reduce(all.bundle(), op::sum);
    CHECK(of.copies() > 0);
    co_await all.expect_all(static_cast<float>(world.size()));
    const auto allocations = fake_gpu::live_allocations(0);
    all.arena = {};
    CHECK(co_await soon([&] { return fake_gpu::live_allocations(0) == allocations - 1; }));
    CHECK(fake_nccl::calls("ncclMemFree") == 0);
    co_await coord.shutdown();
  });
}
