// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The loss of a rank: MPI fails what is sent to it, and what it sends. And who asks what waits.
#include <cohort/comm.hpp>
#include <cohort/graph.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/progress/future.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "graph/isend.hpp"
#include "graph/ranks_support.hpp"
#include "support/patience.hpp"

namespace {

/// The rank that is cut off from all others, by its rank in the world; -1: none.
std::atomic<int> cut_off{-1};
int own_rank = -1;

/// Says that it is another program, where programs are compared.
std::atomic<bool> is_other_program{false};

std::size_t mpi_bytes(int count, MPI_Datatype type) {
  int each = 0;
  MPI_Type_size(type, &each);
  return static_cast<std::size_t>(count) * static_cast<std::size_t>(each);
}

}  // namespace

extern "C" int MPI_Iallgather(const void* in, int in_count, MPI_Datatype in_type, void* out,
                              int out_count, MPI_Datatype out_type, MPI_Comm comm,
                              MPI_Request* request) {
  static std::array<std::byte, 32> other{};
  const bool programs = in_count == 32 && in_type == MPI_BYTE && is_other_program.load();
  return PMPI_Iallgather(programs ? other.data() : in, in_count, in_type, out, out_count, out_type,
                         comm, request);
}

/// Takes the place of MPI's.
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag,
                         MPI_Comm comm, MPI_Request* request) {
  if (graph_test::on_isend) {
    graph_test::on_isend(std::span(static_cast<const std::byte*>(data), mpi_bytes(count, type)), to,
                         comm);
  }
  const int lost = cut_off.load();
  if (lost >= 0 && (to == lost || own_rank == lost)) return MPI_ERR_OTHER;
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

namespace {

using namespace graph_test;
using namespace std::chrono_literals;
using cohort_test::meet;

int doubled(int value) { return 2 * value; }

task loses(graph::scope& s, cohort::communicator world) {
  const int last = s.size() - 1;
  auto f = s.tasks<&doubled>("f", graph::block_cyclic(s.size(), 1));
  auto never = s.tasks<int>("never", graph::on(0));
  for (int i = 0; i < s.size(); ++i) f(i, 0).spawn(i);
  for (int i = 0; i < s.size(); ++i) {
    const int got = co_await f(i, 0).get();
    CHECK(got == 2 * i);
  }
  co_await meet(world);
  own_rank = s.rank();
  cut_off = last;
  // Each rank needs something of rank 0, and that of the last one.
  f(s.size() + s.rank(), 1).spawn(never());
  f(last, 2).spawn(never());
  const auto why = co_await error_of(f(s.rank() == last ? 0 : last, 2).get());
  REQUIRE(why);
  INFO(why->what());
  CHECK(why->code() == errc::peer_lost);
  CHECK(has(why->what(), "is lost"));
  if (s.rank() != last) CHECK(why->rank() == last);
}

/// Rank 0 is not in it.
task awaits_who_has_left(graph::scope& s) {
  const auto why = co_await error_of(s.tasks<int>("never", graph::on(0))().get());
  REQUIRE(why);
  INFO(why->what());
  CHECK(why->code() == errc::peer_lost);
  CHECK(has(why->what(), "rank 0 is lost: it has left"));
}

task waits(graph::scope& s, cohort::communicator world) {
  const int last = s.size() - 1;
  auto source = s.tasks<int>("source", graph::on(0));
  auto f = s.tasks<&doubled>("f", graph::on(last));
  auto g = s.tasks<&doubled>("g", graph::on(last));
  f(1).spawn(source());
  g(2).spawn(f(1));
  co_await meet(world);
  if (s.rank() == 0) {
    graph::scope other = s.fork();
    auto value = other.tasks<&doubled>("g", graph::on(last))(2).get(cohort::as_future);
    const graph::stall_report all = co_await s.report(cohort_test::patient(10s));
    CHECK(all.silent.empty());
    bool told = false;
    for (const auto& one : all.tasks) {
      if (one.task != "g(2)") continue;
      told = true;
      CHECK(one.home == last);
      CHECK(one.state == "waits");
      REQUIRE(one.missing.size() == 1);
      CHECK(one.missing.front() == "f(1)");
    }
    CHECK(told);
    source().put(5);
    const int got = co_await std::move(value);
    CHECK(got == 20);
    other.end();
  }
  static_cast<void>(co_await s.fence());
}

/// Its loop stands still until rank 0 says so.
int blocks(int) {
  int said = 0;
  const cohort::mpi::lock hold;
  MPI_Recv(&said, 1, MPI_INT, 0, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return said;
}

task silent(graph::scope& s) {
  const int last = s.size() - 1;
  auto f = s.tasks<&blocks>("f", graph::on(last));
  static_cast<void>(co_await s.fence());  // the communicators have been made
  f(1).spawn(1);
  if (s.rank() == 0) {
    graph::scope other = s.fork();
    auto value = other.tasks<&blocks>("f", graph::on(last))(1).get(cohort::as_future);
    graph::stall_report all;
    // Until the other one has begun with it, it answers.
    while (all.silent.empty()) {
      auto asking = s.report(20ms);
      all = co_await std::move(asking);
    }
    REQUIRE(all.silent == std::vector<int>{last});
    const int said = 9;
    {
      const cohort::mpi::lock hold;
      PMPI_Send(&said, 1, MPI_INT, last, 77, MPI_COMM_WORLD);
    }
    const int got = co_await std::move(value);
    CHECK(got == 9);
    other.end();
  }
  static_cast<void>(co_await s.fence());
}

int by_row(graph::indices all, int ranks) { return static_cast<int>(all[0]) % ranks; }
struct block {
  int size;
  int first;
};
int by_block(graph::indices all, int ranks, const block& how) {
  return (static_cast<int>(all[0]) / how.size + how.first) % ranks;
}
int nowhere(graph::indices, int ranks) { return ranks; }

task placed(graph::scope& s) {
  auto rows = s.tasks<&doubled>("rows", graph::placement::by<&by_row>());
  auto blocks = s.tasks<&doubled>("blocks", graph::placement::by<&by_block>(block{3, 1}));
  for (int i = 0; i < 10; ++i) {
    CHECK(rows(i).home() == i % s.size());
    CHECK(blocks(i).home() == (i / 3 + 1) % s.size());
    rows(i).spawn(i);
    blocks(i).spawn(rows(i));
  }
  const int got = co_await blocks(9).get();
  CHECK(got == 36);
  auto wrong = s.tasks<&doubled>("wrong", graph::placement::by<&nowhere>());
  CHECK_THROWS_AS(wrong(1), cohort::error);
  CHECK_THROWS_AS(s.tasks<&doubled>("far", graph::on(s.size())), cohort::error);
  CHECK_THROWS_AS(graph::block_cyclic(0, 1), cohort::error);
}

}  // namespace

TEST_CASE("a rank that is lost breaks the scope up, and close ends", "[graph][loss]") {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1) return;
  std::optional<graph::error> found;
  cohort_test::on_world_of_mpi([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run("test", &loses, world);
    try {
      co_await std::move(running);
    } catch (const graph::error& why) {
      found = why;
    }
    cut_off = -1;
    co_await meet(world);
  });
  REQUIRE(found);
  CHECK(found->code() == errc::peer_lost);
}

TEST_CASE("a rank that has left breaks up a scope of others, which closes without it",
          "[graph][loss]") {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 3) return;
  std::optional<graph::error> found;
  cohort_test::on_world_of_mpi([&](cohort::communicator world) -> task {
    std::optional<graph::tasks> all(std::in_place, world);
    if (world.rank() == 0) {
      all.reset();
    } else {
      auto running = all->run("test", &awaits_who_has_left);
      try {
        co_await std::move(running);
      } catch (const graph::error& why) {
        found = why;
      }
    }
    co_await meet(world);
  });
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  REQUIRE(found.has_value() == (rank != 0));
  if (found) CHECK(found->code() == errc::peer_lost);
}

TEST_CASE("what waits is told by the homes of what it waits for", "[graph][loss]") {
  cohort_test::on_world_of_mpi([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run("test", &waits, world);
    co_await std::move(running);
  });
}

TEST_CASE("a home that does not answer is silent", "[graph][loss]") {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size > 1) in_scope(&silent);
}

TEST_CASE("ranks that run another program are named, on all ranks", "[graph][loss]") {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1) return;
  cohort_test::on_world_of_mpi([&](cohort::communicator world) -> task {
    is_other_program = rank == 1 || rank == 3;
    const graph::tasks all(world);
    for (int i = 0; i < 2; ++i) {  // before they are known, and after
      std::optional<graph::error> found;
      auto running = all.run("test", &placed);
      try {
        co_await std::move(running);
      } catch (const graph::error& why) {
        found = why;
      }
      REQUIRE(found);
      CHECK(found->code() == errc::binary_mismatch);
      CHECK(has(found->what(),
                size < 4 ? "rank 1 and rank 0 differ" : "ranks 1, 3 and rank 0 differ"));
    }
    is_other_program = false;
    co_await meet(world);
  });
}

TEST_CASE("a placement is a function, too", "[graph][loss]") { in_scope(&placed); }
