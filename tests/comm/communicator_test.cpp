// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Communicators: where they come from, how long they live, and which messages are theirs.

#include <cohort/collectives.hpp>
#include <cohort/comm.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/core/log.hpp>
#include <cohort/mpi/topology.hpp>
#include <cohort/p2p.hpp>
#include <cohort/progress.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::communicator;
using cohort::errc;
using cohort_test::code_of;
using cohort_test::left_of;
using cohort_test::meet;
using cohort_test::on_world;
using cohort_test::pause;
using cohort_test::right_of;
using cohort_test::run;
using task = asio::awaitable<void>;

/// Counts how often MPI frees the communicators that it was attached to.
class freed_counter {
 public:
  freed_counter() { MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &count, &key_, nullptr); }
  ~freed_counter() { MPI_Comm_free_keyval(&key_); }
  freed_counter(const freed_counter&) = delete;

  void watch(const communicator& comm) {
    const cohort::mpi::lock calls;
    MPI_Comm_set_attr(comm.native(), key_, &freed_);
  }
  [[nodiscard]] int freed() const { return freed_; }

 private:
  static int count(MPI_Comm, int, void* value, void*) {
    ++*static_cast<int*>(value);
    return MPI_SUCCESS;
  }
  int key_ = MPI_KEYVAL_INVALID;
  int freed_ = 0;
};

/// Counts the duplicates of a communicator that have not been freed.
class duplicates {
 public:
  duplicates() {
    MPI_Comm_create_keyval(&copied, &freed, &key_, nullptr);
    MPI_Comm_dup(MPI_COMM_WORLD, &original_);
    MPI_Comm_set_attr(original_, key_, this);
  }
  ~duplicates() {
    MPI_Comm_free(&original_);
    MPI_Comm_free_keyval(&key_);
  }
  duplicates(const duplicates&) = delete;

  [[nodiscard]] MPI_Comm original() const { return original_; }
  [[nodiscard]] int alive() const { return made_ - freed_; }
  [[nodiscard]] int made() const { return made_; }

 private:
  static int copied(MPI_Comm, int, void*, void* value, void* copy, int* keep) {
    ++static_cast<duplicates*>(value)->made_;
    *static_cast<void**>(copy) = value;
    *keep = 1;
    return MPI_SUCCESS;
  }
  static int freed(MPI_Comm, int, void* value, void*) {
    ++static_cast<duplicates*>(value)->freed_;
    return MPI_SUCCESS;
  }
  int key_ = MPI_KEYVAL_INVALID;
  MPI_Comm original_ = MPI_COMM_NULL;
  int made_ = 0;
  int freed_ = 0;
};

/// An operation whose arguments are compared between ranks, and which notes whether its buffers
/// were said to be free.
class compared_operation final : public cohort::comm::request_operation {
 public:
  compared_operation(cohort::comm::communicator_state& state, advance_function when_compared)
      : request_operation([](operation*, action) {}),
        check(state.source.make_check(state, *this, &posted)),
        state_(state) {
    verb = "compared";
    advance_ = when_compared;
    report_settled_to(&settled);
    const cohort::comm::request_source::guard hold(state.source);
    cohort::comm::poster post(state, *this);
    REQUIRE(check->post({}, post) == MPI_SUCCESS);
  }
  static bool tell(request_operation* base) {
    return static_cast<compared_operation*>(base)->check->completed();
  }
  /// As if MPI worked on the comparison for ever.
  static bool keep_pending(request_operation* base) {
    static int never = 0;
    cohort::comm::communicator_state& state = static_cast<compared_operation*>(base)->state_;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&never, 1, MPI_INT, 0, 1, state.data.native(), &request);
    state.source.add(request, *base);
    return true;
  }
  static void posted(request_operation*) { FAIL_CHECK("it was posted"); }

  std::atomic<bool> settled{false};
  std::unique_ptr<cohort::comm::argument_check> check;

 private:
  cohort::comm::communicator_state& state_;
};

/// The comparison of the later one is done, so it waits for its turn.
struct two_comparisons {
  explicit two_comparisons(cohort::comm::communicator_state& state)
      : earlier(state, &compared_operation::keep_pending), later(state, &compared_operation::tell) {
    for (int i = 0; i < 1000 && !later.check->done(); ++i) state.engine.look();
    REQUIRE(later.check->done());
    CHECK_FALSE(earlier.check->done());
  }
  compared_operation earlier;
  compared_operation later;
};

task ring(communicator comm, int tag) {
  const int mine = comm.rank();
  int received = -1;
  co_await cohort::send_recv(comm, mine, right_of(comm), received, left_of(comm), tag);
  CHECK(received == left_of(comm));
}

}  // namespace

TEST_CASE("a communicator duplicates the world and knows its place in it") {
  asio::io_context io;
  const communicator world(io);
  int rank = -1;
  int size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(world.rank() == rank);
  CHECK(world.size() == size);
  int relation = MPI_UNEQUAL;
  MPI_Comm_compare(world.native(), MPI_COMM_WORLD, &relation);
  CHECK(relation == MPI_CONGRUENT);
  CHECK(world.get_executor() == io.get_executor());
  CHECK(world);
  CHECK_FALSE(communicator());
}

TEST_CASE("copies of a handle are one communicator, freed with the last of them") {
  freed_counter freed;
  asio::io_context io;
  communicator world(io);
  freed.watch(world);
  std::optional<communicator> copy(world);
  communicator moved(std::move(world));
  CHECK_FALSE(world);
  CHECK(moved.native() == copy->native());
  world = moved;
  moved = communicator();
  world = communicator();
  CHECK(freed.freed() == 0);
  copy.reset();
  CHECK(freed.freed() == 1);
}

TEST_CASE("an operation outlives its handle, and the communicator the operation") {
  freed_counter freed;
  asio::io_context io;
  const auto work = [&]() -> task {
    std::optional<communicator> world(communicator{io});
    freed.watch(*world);
    const int right = right_of(*world);
    const int left = left_of(*world);
    int received = -1;
    const int mine = world->rank();
    auto arrived = cohort::recv(*world, received, left, 3, cohort::as_future);
    co_await meet(*world);
    auto sent = cohort::send(*world, mine, right, 3, cohort::as_future);
    world.reset();
    co_await std::move(sent);
    co_await std::move(arrived);
    CHECK(received == left);
    CHECK(freed.freed() == 1);
  };
  run(io, work());
  CHECK(freed.freed() == 1);
}

TEST_CASE("an operation that starts after the last handle has gone says so") {
  asio::io_context io;
  const auto work = [&]() -> task {
    std::optional<communicator> world(communicator{io});
    int value = 0;
    auto late = cohort::recv(*world, value, cohort::any_source, 3);
    auto later = cohort::barrier(*world);
    world.reset();
    auto code = co_await code_of(std::move(late));
    CHECK(code == errc::invalid_communicator);
    const communicator next(io);  // its state may lie where the old one was
    code = co_await code_of(std::move(later));
    CHECK(code == errc::invalid_communicator);
    co_await ring(next, 4);
  };
  run(io, work());
}

TEST_CASE("a verb on no communicator completes with invalid_communicator") {
  asio::io_context io;
  const auto work = []() -> task {
    int value = 0;
    auto code = co_await code_of(cohort::send(communicator(), value, 0, 0));
    CHECK(code == errc::invalid_communicator);
    code = co_await code_of(cohort::recv<std::vector<int>>(communicator(), 0, 0));
    CHECK(code == errc::invalid_communicator);
    code = co_await code_of(cohort::send_recv(communicator(), value, 0, value, 0, 0));
    CHECK(code == errc::invalid_communicator);
    code = co_await code_of(cohort::probe(communicator(), 0, 0));
    CHECK(code == errc::invalid_communicator);
    code = co_await code_of(cohort::matched_probe(communicator(), 0, 0));
    CHECK(code == errc::invalid_communicator);
    code = co_await code_of(communicator().dup());
    CHECK(code == errc::invalid_communicator);
    code = co_await code_of(communicator().split(0));
    CHECK(code == errc::invalid_communicator);
  };
  run(io, work());
}

TEST_CASE("a duplicate has the same ranks, the same options and messages of its own") {
  const cohort::communicator_options options{.checks = cohort::checks::bounds};
  on_world(
      [](communicator world) -> task {
        const communicator copy = co_await world.dup();
        CHECK(copy.rank() == world.rank());
        CHECK(copy.size() == world.size());
        CHECK(copy.options().checks == cohort::checks::bounds);
        CHECK(copy.native() != world.native());
        const int first = 1;
        const int second = 2;
        auto one = cohort::send(world, first, right_of(world), 5, cohort::as_future);
        auto two = cohort::send(copy, second, right_of(world), 5, cohort::as_future);
        int value = 0;
        co_await cohort::recv(copy, value, left_of(world), 5);
        CHECK(value == 2);
        co_await cohort::recv(world, value, left_of(world), 5);
        CHECK(value == 1);
        co_await std::move(one);
        co_await std::move(two);
      },
      options);
}

TEST_CASE("duplicating does not wait for what is in flight, and may be done many times at once") {
  on_world([](communicator world) -> task {
    int never = 0;
    auto pending = cohort::recv(world, never, cohort::any_source, 6, cohort::as_future);
    std::vector<cohort::future<communicator>> making;
    for (int i = 0; i < 5; ++i) making.push_back(world.dup(cohort::as_future));
    CHECK_THAT(cohort::process::describe_in_flight(),
               Catch::Matchers::ContainsSubstring(", waits for its turn to make a communicator"));
    const auto made = co_await cohort::when_all(std::move(making));
    for (const auto& comm : made) co_await ring(comm, 6);
    CHECK_FALSE(pending.is_ready());
  });
}

TEST_CASE("a duplicate has the topology of its original, of any kind") {
  on_world([](communicator world) -> task {
    const int n = world.size();
    const auto circle = cohort::mpi::cartesian::of(n).wrap();
    const communicator grid = co_await world.create(circle);
    const communicator grid_copy = co_await grid.dup();
    const cohort::mpi::grid copied(grid_copy.state()->data);
    CHECK(copied.dims() == std::vector<int>{n});
    CHECK(copied.periodic() == std::vector<bool>{true});

    const std::vector<int> from{left_of(world)};
    const std::vector<int> to{right_of(world)};
    cohort::mpi::dist_graph ring_graph(from, to);
    ring_graph.weights(std::vector<int>{7 + left_of(world)}, std::vector<int>{7 + world.rank()});
    const communicator graph = co_await world.create(ring_graph);
    const communicator graph_copy = co_await graph.dup();
    int source = -1;
    int destination = -1;
    int in = 0;
    int out = 0;
    MPI_Dist_graph_neighbors(graph_copy.native(), 1, &source, &in, 1, &destination, &out);
    CHECK(source == left_of(world));
    CHECK(destination == right_of(world));
    CHECK(in == 7 + left_of(world));
    CHECK(out == 7 + world.rank());
  });
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> ends(static_cast<std::size_t>(size));
  std::vector<int> neighbors(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    ends[static_cast<std::size_t>(rank)] = rank + 1;
    neighbors[static_cast<std::size_t>(rank)] = size - 1 - rank;
  }
  MPI_Comm old_graph = MPI_COMM_NULL;
  MPI_Graph_create(MPI_COMM_WORLD, size, ends.data(), neighbors.data(), 0, &old_graph);
  {
    asio::io_context io;
    const communicator original(io, old_graph);
    run(io, [&]() -> task {
      const communicator copy = co_await original.dup();
      int neighbor = -1;
      CHECK(MPI_Graph_neighbors(copy.native(), copy.rank(), 1, &neighbor) == MPI_SUCCESS);
      CHECK(neighbor == size - 1 - copy.rank());
    }());
  }
  MPI_Comm_free(&old_graph);
}

TEST_CASE("communicators may be made over several others at once, in another order on each rank") {
  on_world([](communicator world) -> task {
    const communicator a = co_await world.dup();
    const communicator b = co_await world.split(0, -world.rank());
    for (int round = 0; round < 20; ++round) {
      const bool turned = (world.rank() + round) % 2 != 0;
      std::optional<cohort::future<communicator>> copying;
      if (turned) copying = a.dup(cohort::as_future);
      if (world.rank() == round % world.size()) co_await pause(std::chrono::microseconds(200));
      auto splitting = b.split(world.rank() % 2, 0, cohort::as_future);
      if (!turned) copying = a.dup(cohort::as_future);
      const communicator copy = co_await std::move(*copying);
      const communicator part = co_await std::move(splitting);
      CHECK(copy.size() == world.size());
      co_await ring(copy, 8);
      co_await ring(part, 8);
    }
  });
}

TEST_CASE("split gives the ranks of one color a communicator, ordered by key") {
  on_world([](communicator world) -> task {
    const int color = world.rank() % 2;
    const communicator half = co_await world.split(color, -world.rank());
    CHECK(half.size() == (world.size() + 1 - color) / 2);
    CHECK(half.rank() == half.size() - 1 - world.rank() / 2);
    co_await ring(half, 7);
    int sum = 1;
    co_await cohort::all_reduce(half, sum, cohort::op::sum);
    CHECK(sum == half.size());
    const communicator some = co_await world.split(world.rank() == 0 ? -1 : 3);
    CHECK(static_cast<bool>(some) == (world.rank() != 0));
    if (some) {
      CHECK(some.size() == world.size() - 1);
      co_await ring(some, 7);
    }
  });
}

TEST_CASE("split_node gives the ranks of this node") {
  on_world([](communicator world) -> task {
    const communicator node = co_await world.split_node();
    CHECK(node.size() == world.size());  // the tests run on one machine
    const communicator copy = co_await node.dup();
    co_await ring(copy, 8);
  });
}

TEST_CASE("a communicator knows which of its ranks share a node") {
  on_world([](communicator world) -> task {
    CHECK(world.local_size() == world.size());  // the tests run on one machine
    CHECK(world.local_rank() == world.rank());
    CHECK(world.is_homogeneous());
    const communicator node = co_await world.split_node();
    CHECK(world.local_size() == node.size());
    CHECK(world.local_rank() == node.rank());
    const communicator part = co_await world.split(world.rank() % 2, -world.rank());
    CHECK(part.local_size() == part.size());
    CHECK(part.local_rank() == part.rank());
    const communicator copy = co_await part.dup();
    CHECK(copy.local_size() == part.size());
    CHECK(copy.is_homogeneous());
    asio::io_context io;
    const communicator self(io, MPI_COMM_SELF);
    CHECK(self.local_size() == 1);
    CHECK(self.local_rank() == 0);
  });
}

TEST_CASE("a communicator of the user's is duplicated, with its topology, and stays the user's") {
  MPI_Comm grid = MPI_COMM_NULL;
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int periodic = 1;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &grid);
  {
    asio::io_context io;
    const communicator mine(io, grid);
    CHECK(mine.native() != grid);
    int kind = MPI_UNDEFINED;
    MPI_Topo_test(mine.native(), &kind);
    CHECK(kind == MPI_CART);
    run(io, ring(mine, 9));
  }
  int rank = -1;
  CHECK(MPI_Comm_rank(grid, &rank) == MPI_SUCCESS);
  MPI_Comm_free(&grid);
}

TEST_CASE("MPI_COMM_SELF will do, and MPI_COMM_NULL will not") {
  asio::io_context io;
  const communicator self(io, MPI_COMM_SELF);
  CHECK(self.size() == 1);
  run(io, ring(self, 10));
  try {
    const communicator none(io, MPI_COMM_NULL);
    FAIL("that is no communicator");
  } catch (const std::system_error& problem) {
    CHECK(problem.code() == errc::invalid_communicator);
  }
}

TEST_CASE("contexts have engines of their own, and share MPI") {
  asio::io_context first;
  asio::io_context second;
  const communicator one(first);
  const communicator two(second);
  run(first, ring(one, 11));
  run(second, ring(two, 11));
  CHECK(cohort::engine_stats(first).completions > 0);
  CHECK(cohort::engine_stats(second).completions > 0);
}

TEST_CASE(
    "where a context is promised to be the only one, a second is refused and leaves nothing") {
  const bool first_promises = GENERATE(true, false);
  const bool second_promises = GENERATE(true, false);
  CAPTURE(first_promises, second_promises);
  cohort::engine_options alone;
  alone.single_thread = true;
  const bool refused = first_promises || second_promises;
  duplicates count;
  asio::io_context second;
  {
    asio::io_context first;
    if (first_promises) cohort::use_engine(first, alone);
    const communicator one(first);
    if (second_promises) cohort::use_engine(second, alone);
    std::error_code code;
    try {
      const communicator two(second, count.original());
    } catch (const cohort::error& problem) {
      code = problem.code();
    }
    CHECK(code == (refused ? make_error_code(errc::single_thread_violation) : std::error_code()));
    if (refused) {
      CHECK(count.made() > 0);  // or the next line would say nothing
      CHECK(count.alive() == 0);
      CHECK(second.run() == 0);  // no work, no handler
      second.restart();
      CHECK(cohort::engine_stats(second).laps == 0);
    }
    run(first, ring(one, 14));
    if (!first_promises) {  // a promise that was refused binds nobody
      asio::io_context third;
      const communicator three(third);
      run(third, ring(three, 14));
    }
  }
  // The first is gone: the context that was refused will do.
  const communicator two(second, count.original());
  run(second, ring(two, 14));
}

TEST_CASE("communicators that come and go do not use up what MPI has of them") {
  asio::io_context io;
  const auto work = [&]() -> task {
    const communicator world(io);
    for (int i = 0; i < 300; ++i) {
      const communicator passing = co_await world.dup();
      CHECK(passing.size() == world.size());
    }
  };
  run(io, work());
}

TEST_CASE("a communicator without operations holds no work") {
  asio::io_context io;
  const communicator world(io);
  run(io, ring(world, 12));
  const auto laps = cohort::engine_stats(io).laps;
  asio::steady_timer timer(io, 10ms);
  timer.async_wait([](std::error_code) {});
  io.run();
  CHECK(cohort::engine_stats(io).laps == laps);
}

TEST_CASE("what is pending for too long is named, once") {
  ::setenv("COHORT_STALL_WARNING", GENERATE("0.05", "0.05s", "50ms"), 1);
  const cohort::log::capture logged;
  on_world([&](communicator world) -> task {
    int never = 0;
    auto waits = cohort::recv(world, never, cohort::any_source, 13, cohort::as_future);
    while (!logged.contains("recv #1")) co_await cohort_test::pause(1ms);
    co_await cohort_test::pause(150ms);  // not once more
    waits.cancel();
    const auto code = co_await code_of(std::move(waits));
    CHECK(code == asio::error::operation_aborted);
  });
  ::unsetenv("COHORT_STALL_WARNING");
  const std::string text = logged.text();
  const auto found = text.find("recv #1");
  REQUIRE(found != std::string::npos);
  CHECK(text.find("recv #1", found + 1) == std::string::npos);
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("stalled:"));
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("4 bytes"));
}

TEST_CASE("a stall warning that is no duration is an error that names the variable") {
  const std::string text = GENERATE("1x", "-1", "ms", " 1", "1us", "soon", "nan", "4e7");
  ::setenv("COHORT_STALL_WARNING", text.c_str(), 1);
  {
    asio::io_context io;
    try {
      const communicator world(io);
      FAIL_CHECK("no error");
    } catch (const cohort::error& problem) {
      CHECK(problem.code() == errc::invalid_argument);
      CHECK_THAT(problem.what(),
                 Catch::Matchers::ContainsSubstring("COHORT_STALL_WARNING=" + text + " is not"));
    }
  }
  ::unsetenv("COHORT_STALL_WARNING");
  asio::io_context io;
  const communicator world(io);
  CHECK(world.size() > 0);
}

TEST_CASE("giving up what is pending frees the buffers of what waits for its turn") {
  asio::io_context io;
  const communicator self(io, MPI_COMM_SELF, {.checks = cohort::checks::cross_rank});
  const two_comparisons both(*self.state());
  CHECK_FALSE(both.earlier.settled);
  CHECK_FALSE(both.later.settled);
  self.state()->source.abandon();
  CHECK(both.earlier.settled);
  CHECK(both.later.settled);
  // What is started from now on does not wait behind them.
  const auto sum = [](communicator alone) -> task {
    int value = 3;
    co_await cohort::all_reduce(alone, value, cohort::op::sum);
    CHECK(value == 3);
  };
  run(io, sum(self));
}

TEST_CASE("below SERIALIZED a lap on another thread ends what waits for its turn",
          "[.below_serialized]") {
  asio::io_context io;
  const communicator self(io, MPI_COMM_SELF, {.checks = cohort::checks::cross_rank});
  const two_comparisons both(*self.state());
  cohort::progress::ready_queue ready;
  bool looks = true;
  std::thread([&] { looks = self.state()->source.begin_lap(ready); }).join();
  CHECK_FALSE(looks);
  CHECK(both.earlier.error() == errc::wrong_thread);
  CHECK(both.later.error() == errc::wrong_thread);
  REQUIRE_FALSE(ready.empty());
  CHECK(ready.pop() == &both.earlier);
  REQUIRE_FALSE(ready.empty());
  CHECK(ready.pop() == &both.later);
  CHECK(ready.empty());
}
