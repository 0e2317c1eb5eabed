// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Collectives through shared memory: the same verbs give the same results as through MPI.

#include <cohort/collectives.hpp>
#include <cohort/core/element.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>
#include <cohort/shm.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <complex>
#include <cstdint>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/support.hpp"
#include "shm/support.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using namespace collectives_test;
using namespace shm_test;
using cohort::as_future;
using cohort::communicator;
using cohort_test::on_world;
namespace op = cohort::op;
namespace shm = cohort::shm;

/// Address space in use.
rlim_t mapped_bytes() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

template <class T>
task reduces_as_by_hand(communicator shared) {
  const int ranks = shared.size();
  std::uint64_t seed = sizeof(T);
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{37}, std::size_t{1000}, std::size_t{5000}}) {
    ++seed;
    const std::vector<T> mine = numbers<T>(seed, shared.rank(), count);
    std::vector<T> result(count);
    co_await cohort::all_reduce(shared, mine, result, op::sum);
    CHECK(result == reduced<T>(seed, ranks, count, [](T a, T b) { return static_cast<T>(a + b); }));
    co_await cohort::all_reduce(shared, mine, result, op::product);
    CHECK(result == reduced<T>(seed, ranks, count, product_of<T>));
    result = mine;
    co_await cohort::all_reduce(shared, result, op::min);
    CHECK(result == reduced<T>(seed, ranks, count, [](T a, T b) { return std::min(a, b); }));
    result = mine;
    co_await cohort::all_reduce(shared, result, op::max);
    CHECK(result == reduced<T>(seed, ranks, count, [](T a, T b) { return std::max(a, b); }));
    const int root = shared.size() - 1;
    std::fill(result.begin(), result.end(), T{});
    co_await cohort::reduce(shared, mine, result, op::sum, root);
    if (shared.rank() == root) {
      CHECK(result ==
            reduced<T>(seed, ranks, count, [](T a, T b) { return static_cast<T>(a + b); }));
    }
  }
}

}  // namespace

TEST_CASE("reductions of every arithmetic type, in one chunk and in many", "[shm]") {
  on_world([](communicator world) -> task {
    for (const auto& options : {small, shm::backend_options()}) {
      const communicator shared = co_await sharing(world, options);
      co_await reduces_as_by_hand<float>(shared);
      co_await reduces_as_by_hand<double>(shared);
      co_await reduces_as_by_hand<std::int8_t>(shared);
      co_await reduces_as_by_hand<std::uint16_t>(shared);
      co_await reduces_as_by_hand<int>(shared);
      co_await reduces_as_by_hand<long long>(shared);
      co_await reduces_as_by_hand<long double>(shared);  // not in the table: MPI_Reduce_local
      CHECK(took_all(shared));
    }
  });
}

TEMPLATE_TEST_CASE("numbers of 16 bits are rounded once", "[shm]", cohort::f16, cohort::bf16) {
  on_world([](communicator world) -> task {
    const int n = world.size();
    const int last = n - 1;
    // The last rank's number is so large that nothing is left of 1 that is added to it.
    const float large = std::is_same_v<TestType, cohort::f16> ? 2048.0F : 256.0F;
    for (const std::size_t count : {1, 255, 700, 40'000}) {  // by every rank, and by shares
      const communicator shared = co_await sharing(world, small);
      std::vector<TestType> values(count, TestType(world.rank() == last ? large : 1.0F));
      co_await cohort::all_reduce(shared, values, op::sum);
      const TestType sum(large + static_cast<float>(n - 1));
      CHECK(std::all_of(values.begin(), values.end(),
                        [&](TestType each) { return each.bits == sum.bits; }));
      values.assign(count, TestType(static_cast<float>(world.rank() - 2)));
      co_await cohort::all_reduce(shared, values, op::min);
      CHECK(static_cast<float>(values.back()) == -2.0F);
      values.assign(count, TestType(static_cast<float>(world.rank() - 2)));
      co_await cohort::all_reduce(shared, values, op::max);
      CHECK(static_cast<float>(values.front()) == static_cast<float>(n - 3));
      values.assign(count, TestType(1.5F));
      co_await cohort::all_reduce(shared, values, op::product);
      float power = 1;
      for (int rank = 0; rank < n; ++rank) power *= 1.5F;
      CHECK(static_cast<float>(values.back()) == power);  // 5.0625 has seven bits
      CHECK(took_all(shared));
      CHECK(shared.stats().by_backend.bytes == 4 * count * sizeof(TestType));
    }
  });
}

TEST_CASE("operations and types that are MPI's business", "[shm]") {
  on_world([](communicator world) -> task {
    const communicator shared = co_await sharing(world, small);
    // Does not commute: the order of ranks counts.
    std::vector<affine> maps(500, affine_of(shared.rank()));
    const cohort::user_op after{compose{}, cohort::non_commutative};
    co_await cohort::all_reduce(shared, maps, after);
    CHECK(std::all_of(maps.begin(), maps.end(),
                      [&](const affine& one) { return one == fold(0, world.size()); }));
    std::vector<std::complex<double>> waves(300, {1, double(shared.rank())});
    co_await cohort::all_reduce(shared, waves, op::sum);
    CHECK(waves.back().real() == shared.size());
    std::vector<unsigned> bits(300, 1U << unsigned(shared.rank()));
    co_await cohort::all_reduce(shared, bits, op::bit_or);
    CHECK(bits.front() == (1U << unsigned(shared.size())) - 1);
    std::vector<unsigned char> bytes(1, static_cast<unsigned char>(200));
    co_await cohort::all_reduce(shared, bytes, op::sum);
    CHECK(bytes[0] == static_cast<unsigned char>(200 * shared.size()));
    std::vector<int> large(1, std::numeric_limits<int>::max());  // wraps around
    co_await cohort::all_reduce(shared, large, op::sum);
    CHECK(large[0] == static_cast<int>(static_cast<unsigned>(std::numeric_limits<int>::max()) *
                                       static_cast<unsigned>(shared.size())));
    CHECK(took_all(shared));
    // What no backend is asked for.
    std::vector<int> before(1);
    co_await cohort::scan(shared, large, before, op::max);
    CHECK(shared.stats().operations == shared.stats().by_backend.operations + 1);
  });
}

TEST_CASE("what moves data arrives where MPI would put it", "[shm]") {
  on_world([](communicator world) -> task {
    const communicator shared = co_await sharing(world, small);
    const int ranks = world.size();
    const int me = world.rank();
    const auto n = static_cast<std::size_t>(ranks);
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{50}, std::size_t{2000}}) {
      // Named: g++ 12 destroys temporaries of a co_await twice.
      const std::vector<int> own = values<int>(me, count);
      const std::vector<int> nothing;
      for (int root = 0; root < ranks; ++root) {
        std::vector<int> data = values<int>(me, count);
        co_await cohort::broadcast(shared, data, root);
        CHECK(data == values<int>(root, count));

        std::vector<int> all(me == root ? n * count : 0);
        co_await cohort::gather(shared, own, all, root);
        std::vector<int> expected;
        for (int rank = 0; rank < ranks; ++rank) append(expected, values<int>(rank, count));
        if (me == root) CHECK(all == expected);
        if (me == root) {  // in place
          all.assign(n * count, 0);
          std::copy(own.begin(), own.end(), all.begin() + std::ptrdiff_t(std::size_t(me) * count));
          co_await cohort::gather(shared, all, root);
          CHECK(all == expected);
        } else {
          std::vector<int> sent = own;
          co_await cohort::gather(shared, sent, root);
        }
        std::vector<int> part(count);
        const std::vector<int>& whole = me == root ? expected : nothing;
        co_await cohort::scatter(shared, whole, part, root);
        CHECK(part == values<int>(me, count));
      }
      std::vector<int> all(n * count);
      std::vector<int> expected;
      for (int rank = 0; rank < ranks; ++rank) append(expected, values<int>(rank, count));
      co_await cohort::all_gather(shared, own, all);
      CHECK(all == expected);
      all.assign(n * count, -1);
      std::copy(own.begin(), own.end(), all.begin() + std::ptrdiff_t(std::size_t(me) * count));
      co_await cohort::all_gather(shared, all);
      CHECK(all == expected);

      // Block r of rank s is 100 s + r.
      std::vector<int> blocks;
      std::vector<int> come;
      for (int rank = 0; rank < ranks; ++rank) {
        append(blocks, std::vector<int>(count, 100 * me + rank));
        append(come, std::vector<int>(count, 100 * rank + me));
      }
      std::vector<int> got(n * count);
      co_await cohort::all_to_all(shared, blocks, got);
      CHECK(got == come);
      co_await cohort::all_to_all(shared, blocks);
      CHECK(blocks == come);

      std::vector<int> terms;
      for (int rank = 0; rank < ranks; ++rank) append(terms, values<int>(rank + me, count));
      std::vector<int> sum(count, 0);
      for (int rank = 0; rank < ranks; ++rank) {
        const auto next = values<int>(rank + me, count);
        for (std::size_t i = 0; i < count; ++i) sum[i] += next[i];
      }
      std::vector<int> result(count);
      co_await cohort::reduce_scatter(shared, terms, result, op::sum);
      CHECK(result == sum);
    }
    co_await cohort::barrier(shared);
    CHECK(took_all(shared));
  });
}

TEST_CASE("many collectives under way, ranks out of step, every kind at random", "[shm]") {
  on_world([](communicator world) -> task {
    const communicator shared = co_await sharing(world, small);
    co_await out_of_step(shared, 60, 7);
    CHECK(took_all(shared));
  });
}

TEST_CASE("sums do not depend on when ranks come", "[shm]") {
  on_world([](communicator world) -> task {
    const communicator shared = co_await sharing(world);
    const std::vector<float> mine = uneven_floats(world.rank(), 30'000);
    std::vector<float> first(mine.size());
    co_await cohort::all_reduce(shared, mine, first, op::sum);
    std::mt19937 own(std::random_device{}());
    for (int run = 0; run < 20; ++run) {
      std::vector<float> again(mine.size());
      if (own() % 2 == 0) co_await cohort_test::pause(std::chrono::microseconds(own() % 500));
      co_await cohort::all_reduce(shared, mine, again, op::sum);
      CHECK(again == first);
    }
    CHECK(took_all(shared));
  });
}

TEST_CASE("two backends on one context go on independently", "[shm]") {
  on_world([](communicator world) -> task {
    communicator one = co_await sharing(world, small);
    const communicator two = co_await sharing(world, small);
    std::vector<int> a(3000, 1);
    std::vector<int> b(3000, 2);
    // In crossed order on odd ranks: separate orders cannot be in each other's way.
    std::vector<cohort::future<void>> all;
    if (world.rank() % 2 == 0) {
      all.push_back(cohort::all_reduce(one, a, op::sum, as_future));
      all.push_back(cohort::all_reduce(two, b, op::sum, as_future));
    } else {
      all.push_back(cohort::all_reduce(two, b, op::sum, as_future));
      all.push_back(cohort::all_reduce(one, a, op::sum, as_future));
    }
    co_await cohort::when_all(std::move(all));
    CHECK(a == std::vector<int>(3000, world.size()));
    CHECK(b == std::vector<int>(3000, 2 * world.size()));
    CHECK(took_all(one));
    one = communicator();  // one goes, the other stays
    co_await cohort::all_reduce(two, a, op::sum);
    CHECK(a.back() == world.size() * world.size());
    CHECK(took_all(two));
  });
}

namespace {

/// An all_reduce for which rank 0 waits during `look`; the others begin it after that.
template <class Look>
task waits_for_others(communicator world, communicator shared, Look look) {
  int value = 1;
  if (world.rank() == 0) {
    auto waiting = cohort::all_reduce(shared, value, op::sum, as_future);
    if (world.size() > 1) co_await look();
    co_await cohort_test::meet(world);
    co_await std::move(waiting);
  } else {
    co_await cohort_test::meet(world);
    co_await cohort::all_reduce(shared, value, op::sum);
  }
  CHECK(value == world.size());
}

}  // namespace

TEST_CASE("a report names the ranks that shared memory waits for", "[shm]") {
  on_world([](communicator world) -> task {
    const communicator shared = co_await sharing(world);
    const auto look = [&]() -> task {
      co_await cohort_test::pause(std::chrono::milliseconds(5));
      std::string text;
      shared.state()->engine.describe(text);
      CHECK(text.find("all_reduce of 1 elements") != std::string::npos);
      CHECK(text.find("waits for ranks 1") != std::string::npos);
    };
    co_await waits_for_others(world, shared, look);
  });
}

TEST_CASE("a stall warning names the ranks that shared memory waits for, once", "[shm]") {
  ::setenv("COHORT_STALL_WARNING", "50ms", 1);
  const cohort::log::capture lines;
  on_world([&](communicator world) -> task {
    const communicator shared = co_await sharing(world);
    ::unsetenv("COHORT_STALL_WARNING");
    const auto look = [&]() -> task {
      const std::string about = "rank 0: shared memory: all_reduce of 1 elements, 0 behind it";
      while (!lines.contains(about)) co_await cohort_test::pause(std::chrono::milliseconds(1));
      co_await cohort_test::pause(std::chrono::milliseconds(200));
      const std::string text = lines.text();
      INFO(text);
      const std::size_t at = text.find(about);
      CHECK(text.find("waits for ranks 1", at) < text.find(", pending for ", at));
      CHECK(text.find(about, at + 1) == std::string::npos);
    };
    co_await waits_for_others(world, shared, look);
  });
}

TEST_CASE("a rank that cannot map the segment leaves all with MPI", "[shm]") {
  on_world([](communicator world) -> task {
    const int unable = world.size() - 1;
    constexpr shm::backend_options large{.chunk = 4 << 20};  // 48 MiB for each rank
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
    if (world.rank() == unable) {
      rlimit now = before;
      now.rlim_cur = mapped_bytes() + (32 << 20);  // MPI needs some of it
      REQUIRE(::setrlimit(RLIMIT_AS, &now) == 0);
    }
    const cohort::log::capture logged;
    const shm::backend by = co_await shm::make_backend(world, large);
    REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(!by.active());
    CHECK(by.bytes() == 0);
    // All know the reason of the one, and rank 0 says it.
    INFO(by.why());
    CHECK(by.why().starts_with("rank " + std::to_string(unable) + ": "));
    CHECK(by.why().find("Cannot allocate memory") != std::string::npos);
    CHECK(logged.contains(by.why()) == (world.rank() == 0));
    communicator shared = co_await world.dup();
    shared.set_backend(by);
    int value = 1;
    co_await cohort::all_reduce(shared, value, op::sum);
    CHECK(value == world.size());
    CHECK(shared.stats().operations == 1);
    CHECK(shared.stats().by_backend.operations == 0);
  });
}

TEST_CASE("who has made a backend can be cancelled as before", "[shm]") {
  on_world([](communicator world) -> task {
    const auto work = [](communicator on) -> task {
      const shm::backend by = co_await shm::make_backend(on);
      CHECK(by.active());
      int nothing = 0;
      co_await cohort::recv(on, nothing, on.rank(), 99);  // for ever
    };
    auto bounded = cohort::with_deadline(work(world), std::chrono::milliseconds(100));
    bool ended = false;
    try {
      co_await std::move(bounded);
    } catch (const cohort::deadline_error&) {
      ended = true;
    }
    CHECK(ended);
    co_await cohort::barrier(world);
  });
}

TEST_CASE("options out of range and options that differ are named", "[shm]") {
  on_world([](communicator world) -> task {
    const auto text_of = [&](shm::backend_options options) -> asio::awaitable<std::string> {
      try {
        static_cast<void>(co_await shm::make_backend(world, options));
      } catch (const cohort::error& problem) {
        co_return problem.what();
      }
      co_return "";
    };
    std::string text = co_await text_of({.chunk = 1000});
    CHECK(text.find("chunk=1000: a multiple of 64") != std::string::npos);
    text = co_await text_of({.orders = 0});
    CHECK(text.find("orders=0") != std::string::npos);
    const auto chunk = world.rank() == 0 ? std::size_t{4096} : std::size_t{8192};
    text = co_await text_of({.chunk = chunk});
    if (world.size() == 1) {
      CHECK(text.empty());
    } else {
      CHECK(text.find("rank " + std::to_string(world.rank()) + ": shm::backend_options::chunk=" +
                      std::to_string(chunk)) != std::string::npos);
      // Out of range on one rank only: nobody is left waiting.
      text = co_await text_of({.chunk = world.rank() == 0 ? std::size_t{4096} : std::size_t{1000}});
      CHECK(text.find("is not the same on all ranks") != std::string::npos);
    }
  });
}

namespace {

/// The last rank begins another collective than the others; small ones and, in pieces, large ones.
asio::awaitable<std::error_code> begins_another(communicator shared, int which, std::size_t count) {
  const bool other = shared.rank() == shared.size() - 1;
  std::vector<int> data(which == 0 && other ? count + 1 : count, 1);
  std::error_code failed;
  if (which == 1 && other) {
    std::tie(failed) = co_await cohort::broadcast(shared, data, 0, cohort::as_tuple);
  } else if (which == 2 && other) {
    std::tie(failed) = co_await cohort::all_reduce(shared, data, op::max, cohort::as_tuple);
  } else if (which == 3) {
    std::tie(failed) =
        co_await cohort::reduce(shared, data, op::sum, other ? 1 : 0, cohort::as_tuple);
  } else if (which == 4 && other) {
    std::vector<short> half(2 * count, short{1});
    std::tie(failed) = co_await cohort::all_reduce(shared, half, op::sum, cohort::as_tuple);
  } else {
    std::tie(failed) = co_await cohort::all_reduce(shared, data, op::sum, cohort::as_tuple);
  }
  co_return failed;
}

}  // namespace

TEST_CASE("ranks that begin different collectives all see what differs", "[shm]") {
  on_world([](communicator world) -> task {
    if (world.size() == 1) co_return;
    const bool other = world.rank() == world.size() - 1;
    const std::array<std::string, 5> differ{
        "bytes=", "verb=", "operation=", "root=", "element.bytes="};
    for (int which = 0; which < 5; ++which) {
      for (const std::size_t count : {std::size_t{2}, std::size_t{3000}}) {
        const cohort::log::capture lines;
        auto shared = co_await sharing(world, small);
        co_await cohort::barrier(shared);
        const std::error_code failed = co_await begins_another(shared, which, count);
        CAPTURE(which, count);
        CHECK(failed == cohort::errc::cross_rank_mismatch);
        CHECK(lines.contains("shared memory: "));
        CHECK(lines.contains(differ[static_cast<std::size_t>(which)]));
        if (!other) CHECK(lines.contains("on rank " + std::to_string(world.size() - 1) + ";"));
        if (other) CHECK(lines.contains("on rank 0;"));
        const auto [later] = co_await cohort::barrier(shared, cohort::as_tuple);
        CHECK(later == cohort::errc::cross_rank_mismatch);
      }
    }
  });
}

TEST_CASE("ranks may have different types for the same bytes, where nothing is reduced", "[shm]") {
  on_world([](communicator world) -> task {
    const auto shared = co_await sharing(world, small);
    for (const std::size_t triples : {1U, 400U}) {
      const std::vector<double> expected(3 * triples, 2.5);
      std::vector<double> single(3 * triples, world.rank() == 0 ? 2.5 : 0);
      std::vector<std::array<double, 3>> packed(triples);
      if (world.rank() == 0) {
        co_await cohort::broadcast(shared, single, 0);
      } else {
        co_await cohort::broadcast(shared, packed, 0);
        for (std::size_t i = 0; i < single.size(); ++i) single[i] = packed[i / 3][i % 3];
      }
      CHECK(single == expected);
    }
    CHECK(took_all(shared));
  });
}

TEST_CASE("what ranks have begun alike ends well before they differ", "[shm]") {
  on_world([](communicator world) -> task {
    if (world.size() == 1) co_return;
    const cohort::log::capture lines;
    auto shared = co_await sharing(world, small);
    std::vector<int> right(3000, 1);
    std::vector<int> wrong(world.rank() == 0 ? 5 : 6);
    auto first = cohort::all_reduce(shared, right, op::sum, as_future);
    auto second = cohort::all_reduce(shared, wrong, op::sum, as_future);
    co_await std::move(first);
    CHECK(right == std::vector<int>(3000, world.size()));
    std::error_code failed;
    try {
      co_await std::move(second);
    } catch (const std::system_error& problem) {
      failed = problem.code();
    }
    CHECK(failed == cohort::errc::cross_rank_mismatch);
  });
}

TEST_CASE("what is in shared memory goes on while a rank is inside a blocking call of MPI",
          "[shm]") {
  on_world([](communicator world) -> task {
    if (world.size() == 1) co_return;
    const auto shared = co_await sharing(world);
    const int last = world.size() - 1;
    int done = 0;
    // More calls than a rank has buffers; calls that need every rank to reduce a part; many chunks.
    for (const std::size_t count : {1U, 5000U, 300'000U}) {
      std::vector<std::vector<double>> sums(10, std::vector<double>(count, world.rank() + 1.0));
      std::vector<double> shown(count, world.rank());
      std::vector<cohort::future<>> all;
      for (auto& each : sums) all.push_back(cohort::all_reduce(shared, each, op::sum, as_future));
      all.push_back(cohort::broadcast(shared, shown, 0, as_future));
      if (world.rank() == 0) {
        MPI_Recv(&done, 1, MPI_INT, last, 1, world.native(), MPI_STATUS_IGNORE);
      }
      for (auto& each : all) co_await std::move(each);
      if (world.rank() == last) MPI_Send(&done, 1, MPI_INT, 0, 1, world.native());
      for (const auto& each : sums) {
        CHECK(each == std::vector<double>(count, world.size() * (world.size() + 1) / 2.0));
      }
      CHECK(shown == std::vector<double>(count, 0.0));
    }
    CHECK(took_all(shared));
  });
}

TEST_CASE("what borrows nothing can be given up in shared memory, and goes on for the others",
          "[shm]") {
  on_world([](communicator world) -> task {
    if (world.size() == 1) co_return;
    const auto shared = co_await sharing(world);
    std::vector<int> token(1);
    if (world.rank() == 0) {
      auto barrier = cohort::barrier(shared, as_future);
      auto sum = cohort::all_reduce(shared, std::vector<double>(3000, 1.0), op::sum, as_future);
      barrier.cancel();
      sum.cancel();
      std::error_code of_barrier;
      std::error_code of_sum;
      try {
        co_await std::move(barrier);
      } catch (const std::system_error& why) {
        of_barrier = why.code();
      }
      try {
        co_await std::move(sum);
      } catch (const std::system_error& why) {
        of_sum = why.code();
      }
      CHECK(of_barrier == asio::error::operation_aborted);
      CHECK(of_sum == asio::error::operation_aborted);
      // The others begin only now.
      for (int rank = 1; rank < world.size(); ++rank) co_await cohort::send(world, token, rank, 1);
    } else {
      co_await cohort::recv(world, token, 0, 1);
      co_await cohort::barrier(shared);
      const auto sum = co_await cohort::all_reduce(shared, std::vector<double>(3000, 1.0), op::sum);
      CHECK(sum == std::vector<double>(3000, world.size()));
    }
    std::vector<double> x(10, 1.0);
    co_await cohort::all_reduce(shared, x, op::sum);
    CHECK(x == std::vector<double>(10, world.size()));
    CHECK(took_all(shared));
  });
}
