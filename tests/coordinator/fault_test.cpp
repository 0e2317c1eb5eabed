// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A data operation that fails on a rank after election, by an MPI function that says so.
#include <cohort/coordinator.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "coordinator/support.hpp"
#include "faults/interposer.hpp"
#include "support/patience.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::as_future;
using cohort::communicator;
using cohort::coordinator;
using cohort::errc;
using cohort_test::caught;
using cohort_test::has;
using cohort_test::works;
namespace op = cohort::op;

/// Without faults the next coordinator of the ranks works.
asio::awaitable<void> works_again(communicator world) {
  faults::reset();
  coordinator next(world);
  co_await works(next, "after");
  co_await next.shutdown();
}

/// What is large travels in pieces of 4096 bytes.
cohort::coordinator_options small_pieces() {
  cohort::coordinator_options options;
  options.piece = 4096;
  options.fusion_threshold = 4096;
  return options;
}

/// `body(world, coord)` on at least `least` ranks, with a coordinator that has worked.
template <class Body>
void on_ranks(int least, const cohort::coordinator_options& options, Body body) {
  cohort_test::on_world_of_mpi([&](communicator world) -> asio::awaitable<void> {
    if (world.size() < least) co_return;
    coordinator coord(world, options);
    co_await works(coord, "before");
    co_await cohort_test::meet(world);
    faults::reset();
    co_await body(world, coord);
  });
}
template <class Body>
void on_ranks(int least, Body body) {
  on_ranks(least, {}, body);
}

}  // namespace

TEST_CASE("a data operation that fails on one rank ends the coordinator on all",
          "[coordinator][failures]") {
  const cohort::log::capture lines;
  cohort_test::on_world_of_mpi([&](communicator world) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    coordinator coord(world);
    co_await works(coord, "before");
    // A leaf of the broadcast does not take part. The others need not wait for it.
    std::vector<int> data(4, 1);
    int value = 1;
    const bool fails = world.rank() == last;
    // Its decision cannot come before that of the broadcast on the rank that waits for it.
    auto pending = fails ? cohort::future<void>(coord.barrier("unused", as_future))
                         : coord.all_reduce("pending", value, op::sum, as_future);
    if (fails) pending.cancel();
    faults::reset();
    if (fails) faults::fail_next("MPI_Ibcast", MPI_ERR_OTHER);
    if (fails) {
      const auto problem = co_await caught<cohort::data_error>(coord.broadcast("broken", data, 0));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{last});
      CHECK(has(problem->what(), "rank " + std::to_string(last) + ": broadcast #"));
      CHECK(lines.contains("rank " + std::to_string(last) + ": broadcast #"));
      CHECK(faults::failed_as_asked("MPI_Ibcast"));
    } else {
      co_await coord.broadcast("broken", data, 0);
    }
    const auto check = [&](asio::awaitable<void> work) -> asio::awaitable<void> {
      const auto problem = co_await caught<cohort::data_error>(std::move(work));
      REQUIRE(problem);
      CHECK(problem->code() == errc::data_operation_failed);
      CHECK(problem->ranks() == std::vector<int>{last});
      CHECK(has(problem->what(), "a data operation failed on rank " + std::to_string(last) + ": "));
    };
    if (fails) {
      // It was cancelled before or ends with the coordinator.
      const std::error_code code = co_await cohort_test::code_of(std::move(pending));
      CHECK(code);
    } else {
      co_await check(std::move(pending));
    }
    const auto later =
        co_await caught<cohort::data_error>(coord.all_reduce("later", value, op::sum));
    CHECK(later);
    co_await check(coord.barrier());
    CHECK(coord.pending().empty());
    co_await coord.shutdown();
    co_await works_again(world);
  });
}

TEST_CASE("a data operation that fails on all ranks", "[coordinator][failures]") {
  const std::string function = GENERATE(as<std::string>{}, "MPI_Iallreduce", "MPI_Ibarrier",
                                        "MPI_Iallgather", "MPI_Iallgatherv", "MPI_Ireduce");
  const cohort::log::capture lines;
  cohort_test::on_world_of_mpi([&](communicator world) -> asio::awaitable<void> {
    coordinator coord(world);
    co_await works(coord, "before");
    std::vector<int> data(4, 1);
    faults::reset();
    faults::fail_next(function, MPI_ERR_NO_MEM);
    const auto submit = [&]() -> asio::awaitable<void> {
      if (function == "MPI_Iallreduce") {
        co_await coord.all_reduce("broken", data, op::sum);
      } else if (function == "MPI_Ibarrier") {
        co_await coord.barrier("broken");
      } else if (function == "MPI_Ireduce") {
        co_await coord.reduce("broken", data, op::sum, 0);
      } else {
        co_await coord.all_gather("broken", data);
      }
    };
    // Several at once, one of them fails; whatever waits behind it ends too.
    auto one = asio::co_spawn(coord.get_executor(), submit(), as_future);
    const auto problem = co_await caught<cohort::data_error>(std::move(one));
    REQUIRE(problem);
    // Or another rank was first, and this one has heard of it before its last part.
    CHECK(
        (faults::failed_as_asked(function) || problem->ranks() != std::vector<int>{world.rank()}));
    const auto later = co_await caught<cohort::data_error>(coord.barrier());
    CHECK(later);
    co_await coord.shutdown();
    co_await works_again(world);
  });
}

namespace {

/// One operation of each way through the data plane. With small_pieces().
asio::awaitable<void> one_of(coordinator coord, std::string what) {
  std::vector<int> data(4, 1);
  std::vector<int> large(20'000, 1);
  std::vector<int> all(4 * static_cast<std::size_t>(coord.size()), 1);
  if (what == "all_reduce") {
    co_await coord.all_reduce("it", data, op::sum);
  } else if (what == "all_reduce in pieces") {
    co_await coord.all_reduce("it", large, op::sum);
  } else if (what == "all_reduce of a pack") {
    co_await coord.grouped_all_reduce(cohort::bundle("it").add("a", data).add("b", all), op::sum);
  } else if (what == "barrier") {
    co_await coord.barrier("it");
  } else if (what == "all_gather, its sizes") {
    co_await coord.all_gather("it", data);
  } else if (what == "all_to_all") {
    const std::vector<std::int64_t> splits(static_cast<std::size_t>(coord.size()), 4);
    co_await coord.all_to_all("it", all, splits);
  } else {
    co_await coord.join();
  }
}

std::string function_of(const std::string& what) {
  if (what == "barrier") return "MPI_Ibarrier";
  if (what == "all_gather, its sizes") return "MPI_Iallgather";
  if (what == "all_to_all") return "MPI_Ialltoallv";
  return "MPI_Iallreduce";
}

}  // namespace

TEST_CASE("a data operation that others have posted already ends on all ranks",
          "[coordinator][failures]") {
  const std::string what =
      GENERATE(as<std::string>{}, "all_reduce", "all_reduce in pieces", "all_reduce of a pack",
               "barrier", "all_gather, its sizes", "all_to_all", "join");
  const cohort::log::capture lines;
  on_ranks(2, small_pieces(), [&](communicator world, coordinator coord) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    if (world.rank() == last) faults::fail_next(function_of(what), MPI_ERR_NO_MEM);
    const auto begun = std::chrono::steady_clock::now();
    const auto problem = co_await caught<cohort::data_error>(one_of(coord, what));
    CHECK(std::chrono::steady_clock::now() - begun < cohort_test::patient(10s));
    REQUIRE(problem);
    CHECK(problem->ranks() == std::vector<int>{last});
    if (world.rank() == last) {
      CHECK(faults::failed_as_asked(function_of(what)));
    } else {
      CHECK(has(problem->what(), "a data operation failed on rank " + std::to_string(last) + ": "));
    }
    CHECK(coord.pending().empty());
    co_await coord.shutdown();
    co_await works_again(world);
  });
}

namespace {

constexpr int tag = 77;

/// A rank that calls nothing but MPI for a while: it says so to rank 2 and waits for a word of it.
/// False if that does not come.
bool stop_until_told() {
  MPI_Send(nullptr, 0, MPI_BYTE, 2, tag, MPI_COMM_WORLD);
  const auto limit = std::chrono::steady_clock::now() + cohort_test::patient(10s);
  for (int found = 0; found == 0;) {
    if (std::chrono::steady_clock::now() > limit) return false;
    MPI_Iprobe(2, tag, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }
  return MPI_Recv(nullptr, 0, MPI_BYTE, 2, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS;
}
void wait_for_stop(int rank) {
  MPI_Recv(nullptr, 0, MPI_BYTE, rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
void tell(int rank) { MPI_Send(nullptr, 0, MPI_BYTE, rank, tag, MPI_COMM_WORLD); }
/// Waits for a word of rank 2 while the loop goes on.
asio::awaitable<void> until_told() {
  for (int found = 0; found == 0;) {
    co_await cohort_test::pause(5ms);
    MPI_Iprobe(2, tag, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }
  MPI_Recv(nullptr, 0, MPI_BYTE, 2, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/// Rank 1 stops when it has told its sizes, until it is told by rank 2.
class stop_after_sizes {
 public:
  explicit stop_after_sizes(const communicator& world) : done_(world.rank() != 1) {
    if (done_) return;
    faults::replace_testsome(
        [this](int n, MPI_Request* requests, int* found, int* indices, MPI_Status* statuses) {
          if (!done_ && faults::calls("MPI_Iallgather") != 0) {
            done_ = true;
            CHECK(stop_until_told());
          }
          return PMPI_Testsome(n, requests, found, indices, statuses);
        });
  }
  stop_after_sizes(const stop_after_sizes&) = delete;
  [[nodiscard]] bool done() const noexcept { return done_; }

 private:
  bool done_;
};

/// How it has failed, if it has.
asio::awaitable<std::optional<cohort::data_error>> watched(asio::awaitable<void> work,
                                                           bool& ended) {
  std::optional<cohort::data_error> problem;
  try {
    co_await std::move(work);
  } catch (const cohort::data_error& failed) {
    problem = failed;
  }
  ended = true;
  co_return problem;
}

}  // namespace

// Rank 1 brings nothing and does not close until it is told to: the others have what they posted.
TEST_CASE("buffers are the callers' again only when every rank has closed",
          "[coordinator][failures]") {
  const cohort::log::capture lines;
  on_ranks(3, [&](communicator world, coordinator coord) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    const std::uint64_t before = coord.stats().messages_sent;
    if (world.rank() == last) {
      wait_for_stop(1);
      faults::fail_next("MPI_Iallreduce", MPI_ERR_NO_MEM);
    }
    int value = 1;
    std::optional<cohort::future<void>> later;
    if (world.rank() == 0) later = coord.all_reduce("later", value, op::sum, as_future);
    bool ended = false;
    auto pending = asio::co_spawn(coord.get_executor(), watched(one_of(coord, "all_reduce"), ended),
                                  as_future);
    if (world.rank() == 1) {
      co_await cohort_test::until_sent(coord, before);
      tell(last);
      wait_for_stop(0);
    }
    if (world.rank() == 0) {
      const auto closed = co_await caught<cohort::data_error>(*std::move(later));
      CHECK(closed);
      co_await cohort_test::pause(500ms);
      CHECK_FALSE(ended);
      tell(1);
    }
    const auto problem = co_await std::move(pending);
    REQUIRE(problem);
    CHECK(problem->ranks() == std::vector<int>{last});
    co_await coord.shutdown();
    co_await works_again(world);
  });
}

// Rank 2 cannot post the second part while MPI has the first, to which rank 1 brings nothing before
// it has heard that all have closed.
TEST_CASE("an operation that is posted in part tells of it at once", "[coordinator][failures]") {
  const bool bundled = GENERATE(true, false);  // two requests of one chain, or of two
  const cohort::log::capture lines;
  on_ranks(3, small_pieces(), [&](communicator world, coordinator coord) -> asio::awaitable<void> {
    std::vector<int> a(4, 1);
    std::vector<int> b(8, 1);
    std::vector<int> large(20'000, 1);
    const std::string function = bundled ? "MPI_Ireduce" : "MPI_Iallreduce";
    const auto submit = [&]() -> asio::awaitable<void> {
      if (bundled) {
        co_await coord.grouped_reduce(cohort::bundle("it").add("a", a).add("b", b), op::sum, 2);
      } else {
        co_await coord.all_reduce("it", large, op::sum);
      }
    };
    if (world.rank() == 2) {
      wait_for_stop(1);
      faults::fail_next(function, MPI_ERR_NO_MEM, 1);
    }
    int value = 1;
    std::optional<cohort::future<void>> later;
    if (world.rank() == 2) later = coord.all_reduce("later", value, op::sum, as_future);
    bool ended = false;
    const std::uint64_t before = coord.stats().messages_sent;
    auto pending = asio::co_spawn(coord.get_executor(), watched(submit(), ended), as_future);
    if (world.rank() == 1) {
      co_await cohort_test::until_sent(coord, before);
      CHECK(stop_until_told());
    }
    if (world.rank() == 2) {
      const auto closed = co_await caught<cohort::data_error>(*std::move(later));
      CHECK(closed);
      CHECK(faults::failed_as_asked(function));
      CHECK_FALSE(ended);  // MPI has the first part, and works on memory of the caller
      for (int rank = 0; rank < world.size(); ++rank) {
        if (rank != 2) tell(rank);
      }
    }
    const auto problem = co_await std::move(pending);
    // Who only sends may be done, and would leave before the fault.
    if (world.rank() != 1 && world.rank() != 2) co_await until_told();
    if (!bundled || world.rank() == 2) REQUIRE(problem);
    if (problem) CHECK(problem->ranks() == std::vector<int>{2});
    if (world.rank() == 2) {
      CHECK(has(problem->what(), bundled ? "rank 2: reduce #" : "rank 2: all_reduce #"));
    }
    CHECK(coord.pending().empty());
    co_await coord.shutdown();
    co_await works_again(world);
  });
}

// More bytes than an int counts go as messages in pairs: rank 2 posts all its receives and no send.
TEST_CASE("receives that are posted keep their memory when the sends fail",
          "[coordinator][failures]") {
  const cohort::log::capture lines;
  on_ranks(3, [&](communicator world, coordinator coord) -> asio::awaitable<void> {
    // What ranks with so much data say of it.
    faults::alter_sent([rank = world.rank()](void* sizes) {
      *static_cast<std::int64_t*>(sizes) = ~*static_cast<std::int64_t*>(sizes);
      if (rank == 2) faults::fail_next("MPI_Isend", MPI_ERR_NO_MEM);
    });
    const stop_after_sizes stop(world);
    std::vector<int> data(4, world.rank());
    int value = 1;
    std::optional<cohort::future<void>> later;
    if (world.rank() == 2) {
      const std::uint64_t before = coord.stats().messages_sent;
      later = coord.all_reduce("later", value, op::sum, as_future);
      co_await cohort_test::until_sent(coord,
                                       before);  // the next message that fails is another one
    }
    bool ended = false;
    const auto gather = [&]() -> asio::awaitable<void> {
      static_cast<void>(co_await coord.all_gather("it", data));
    };
    auto pending = asio::co_spawn(coord.get_executor(), watched(gather(), ended), as_future);
    if (world.rank() == 2) {
      const auto closed = co_await caught<cohort::data_error>(*std::move(later));
      CHECK(closed);
      CHECK(faults::failed_as_asked("MPI_Isend"));
      CHECK_FALSE(ended);
      wait_for_stop(1);
      tell(1);
    }
    const auto problem = co_await std::move(pending);
    REQUIRE(problem);
    CHECK(problem->ranks() == std::vector<int>{2});
    CHECK(stop.done());
    CHECK(coord.pending().empty());
    co_await coord.shutdown();
    co_await works_again(world);
  });
}

namespace {

struct failing_backend {
  static bool takes(const cohort::comm::collective_call& call) noexcept {
    return call.kind == cohort::op_kind::all_reduce;
  }
  static void start(const cohort::comm::collective_call&, cohort::comm::backend_completion) {
    throw std::system_error(std::make_error_code(std::errc::no_such_device));
  }
};

}  // namespace

TEST_CASE("a backend that cannot start an operation ends the coordinator",
          "[coordinator][failures]") {
  const cohort::log::capture lines;
  cohort_test::on_world_of_mpi([&](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, failing_backend());
    co_await coord.join();  // which no backend is asked to do
    std::vector<int> data(4, 1);
    const auto problem = co_await caught<cohort::data_error>(coord.all_reduce("it", data, op::sum));
    REQUIRE(problem);
    CHECK(has(problem->what(), std::make_error_code(std::errc::no_such_device).message()));
    CHECK(coord.pending().empty());
    co_await coord.shutdown();
    co_await works_again(world);
  });
}

// Rank 1 stops when it has told its sizes of "a". The others post its data, for which they wait,
// and "b", which needs the slot of "a", must not wait for them.
TEST_CASE("the next operation takes a slot when its last part is posted",
          "[coordinator][failures]") {
  cohort::coordinator_options options;
  options.slots = 1;
  on_ranks(3, options, [&](communicator world, coordinator coord) -> asio::awaitable<void> {
    const stop_after_sizes stop(world);
    std::vector<int> data(4, world.rank());
    auto a = coord.all_gather("a", data, as_future);
    auto b = coord.all_gather("b", data, as_future);
    if (world.rank() == 2) {
      const auto limit = std::chrono::steady_clock::now() + cohort_test::patient(5s);
      while (faults::calls("MPI_Iallgather") < 2 && std::chrono::steady_clock::now() < limit) {
        co_await cohort_test::pause(1ms);
      }
      CHECK(faults::calls("MPI_Iallgather") == 2);
      wait_for_stop(1);
      tell(1);
    }
    const auto all = co_await std::move(a);
    const auto same = co_await std::move(b);
    CHECK(stop.done());
    CHECK(all.size() == 4 * static_cast<std::size_t>(world.size()));
    CHECK(all == same);
    co_await coord.shutdown();
    faults::reset();
  });
}

TEST_CASE("a start of a persistent group that others have posted already",
          "[coordinator][failures]") {
  const bool packed = GENERATE(true, false);
  const cohort::log::capture lines;
  cohort_test::on_world_of_mpi([&](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const int last = world.size() - 1;
    std::vector<int> a(4, 1);
    std::vector<int> b(8, 1);
    coordinator coord(world);
    co_await works(coord, "before");
    cohort::bundle tensors("group");
    tensors.add("a", a);
    if (packed) tensors.add("b", b);
    auto group = co_await coord.make_persistent(std::move(tensors), op::sum);
    co_await group.start();
    CHECK(a == std::vector<int>(4, world.size()));
    co_await cohort_test::meet(world);
    faults::reset();
    if (world.rank() == last) faults::fail_next("MPI_Iallreduce", MPI_ERR_NO_MEM);
    // Who starts after the fault has come is refused.
    if (world.rank() == last) co_await cohort_test::pause(200ms);
    auto first = group.start(as_future);
    auto second = group.start(as_future);
    const auto problem = co_await caught<cohort::data_error>(std::move(first));
    REQUIRE(problem);
    CHECK(problem->ranks() == std::vector<int>{last});
    const auto next_one = co_await caught<cohort::data_error>(std::move(second));
    CHECK(next_one);
    const auto later = co_await caught<cohort::data_error>(group.start());
    CHECK(later);
    co_await coord.shutdown();
    co_await works_again(world);
  });
}

TEST_CASE("a control message that MPI fails to send ends the coordinator on all ranks",
          "[coordinator][failures]") {
  const std::string which = GENERATE(as<std::string>{}, "leaf", "inner node", "root");
  const cohort::log::capture lines;
  cohort::coordinator_options options;
  options.radix = 1;
  const int least = which == "inner node" ? 3 : 2;
  on_ranks(least, options, [&](communicator world, coordinator coord) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    const int failing = which == "leaf" ? last : which == "root" ? 0 : 1;
    if (world.rank() == failing) faults::fail_next("MPI_Isend", MPI_ERR_NO_MEM);
    const auto begun = std::chrono::steady_clock::now();
    const auto problem = co_await caught<cohort::peer_lost_error>(one_of(coord, "all_reduce"));
    CHECK(std::chrono::steady_clock::now() - begun < cohort_test::patient(10s));
    REQUIRE(problem);
    if (world.rank() == failing) {
      CHECK(faults::failed_as_asked("MPI_Isend"));
      REQUIRE(problem->ranks().size() == 1);
      CHECK(std::abs(problem->ranks().front() - failing) == 1);
      CHECK(has(problem->what(), "no connection to rank "));
    } else {
      CHECK(problem->ranks() == std::vector<int>{failing});
      CHECK(has(problem->what(), "rank " + std::to_string(failing) + " has closed"));
    }
    const auto later = co_await caught<cohort::peer_lost_error>(coord.barrier());
    CHECK(later);
    co_await coord.shutdown();
    CHECK(std::chrono::steady_clock::now() - begun < cohort_test::patient(10s));
    co_await works_again(world);
  });
}

TEST_CASE("who has not heard of the end is told when it cannot be sent",
          "[coordinator][failures]") {
  const cohort::log::capture lines;
  on_ranks(2, [&](communicator world, coordinator coord) -> asio::awaitable<void> {
    const auto heard = [&] { return coord.stats().messages_received; };
    const auto before = heard();
    co_await cohort_test::meet(world);
    if (world.rank() == 0) {
      // All others have left, so the next message tells of the end. None is to follow it.
      const auto limit = std::chrono::steady_clock::now() + cohort_test::patient(10s);
      while (heard() - before < static_cast<std::size_t>(world.size() - 1)) {
        REQUIRE(std::chrono::steady_clock::now() < limit);
        co_await cohort_test::pause(1ms);
      }
      faults::fail_next("MPI_Isend", MPI_ERR_NO_MEM);
    }
    const std::error_code closed = co_await cohort_test::code_of(coord.shutdown());
    CHECK_FALSE(closed);  // else: nothing has come before the deadline
    if (world.rank() == 0) CHECK(faults::failed_as_asked("MPI_Isend"));
    CHECK(lines.contains(world.rank() == 0 ? "no connection to rank 1" : "rank 0 has closed"));
    co_await works_again(world);
  });
}

// What the children say is with MPI before rank 0 looks again. It answers the first with a message
// that fails, and the next one would start "x", which has ended by then.
TEST_CASE("a message that has come before a break is not taken after it",
          "[coordinator][failures]") {
  const cohort::log::capture lines;
  on_ranks(3, [&](communicator world, coordinator coord) -> asio::awaitable<void> {
    int x = 1;
    std::vector<int> y(world.rank() == 0 ? 4 : 8, 1);  // which they do not agree on
    const auto before = coord.stats();
    if (world.rank() != 0) {
      MPI_Recv(nullptr, 0, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    auto sum = coord.all_reduce("x", x, op::sum, as_future);
    auto broken = coord.all_reduce("y", y, op::sum, as_future);
    if (world.rank() == 0) {
      co_await cohort_test::pause(20ms);  // these two are known, and there is nothing to tell yet
      faults::fail_next("MPI_Isend", MPI_ERR_NO_MEM);
      for (int rank = 1; rank < world.size(); ++rank) tell(rank);
      for (int rank = 1; rank < world.size(); ++rank) wait_for_stop(rank);
    } else {
      while (coord.stats().messages_sent == before.messages_sent) {
        co_await cohort_test::pause(1ms);
      }
      tell(0);  // behind it
    }
    const auto lost = co_await caught<cohort::peer_lost_error>(std::move(sum));
    REQUIRE(lost);
    const auto as_well = co_await caught<cohort::peer_lost_error>(std::move(broken));
    CHECK(as_well);
    co_await coord.shutdown();
    if (world.rank() == 0) {
      CHECK(faults::failed_as_asked("MPI_Isend"));
      CHECK(faults::calls("MPI_Iallreduce") == 0);
      CHECK(coord.stats().messages_received == before.messages_received + 1);
    }
    co_await works_again(world);
  });
}

TEST_CASE("a rank whose every control message fails is found out at the deadlines",
          "[coordinator][failures]") {
  const cohort::log::capture lines;
  cohort::coordinator_options options;
  options.query_timeout = 100ms;
  options.decision_timeout = 400ms;
  options.leave_deadline = 1s;
  on_ranks(2, options, [&](communicator world, coordinator coord) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    std::vector<int> data(3, 1);
    const auto begun = std::chrono::steady_clock::now();
    if (world.rank() == last) {
      faults::fail_always("MPI_Isend", MPI_ERR_OTHER);
      const auto problem =
          co_await caught<cohort::peer_lost_error>(coord.all_reduce("x", data, op::sum));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{0});
      co_await coord.shutdown();
      faults::reset();
    } else {
      auto x = coord.all_reduce("x", data, op::sum, as_future);
      if (world.rank() == 0) {
        co_await cohort_test::until_known(coord, last);  // before its deadline begins
        const auto problem =
            co_await caught<cohort::deadline_error>(cohort::with_deadline(std::move(x), 50ms));
        REQUIRE(problem);
        CHECK(problem->stall().missing == std::vector<int>{last});
      } else {
        const auto problem = co_await caught<cohort::withdrawn_error>(std::move(x));
        REQUIRE(problem);
        CHECK(problem->stall().missing == std::vector<int>{last});
      }
      const std::error_code closed = co_await cohort_test::code_of(coord.shutdown());
      CHECK(closed == errc::stalled);
    }
    CHECK(std::chrono::steady_clock::now() - begun < cohort_test::patient(10s));
  });
}

TEST_CASE("a lost connection is not said to have been aborted", "[coordinator][failures]") {
  using cohort::coordination::reason_of;
  CHECK(reason_of(asio::error::operation_aborted).empty());
  const std::error_code no_memory = cohort::mpi::make_error(MPI_ERR_NO_MEM);
  CHECK(has(reason_of(no_memory), no_memory.message()));
}
