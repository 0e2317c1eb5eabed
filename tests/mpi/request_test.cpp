// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Owned requests and shared windows.

#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/request.hpp>
#include <cohort/mpi/shared_window.hpp>

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace {

namespace mpi = cohort::mpi;

mpi::comm_ref world() { return mpi::comm_ref::world(); }

mpi::request receive(int& value, int source, int tag) {
  const mpi::lock calls;
  mpi::request result;
  mpi::check(MPI_Irecv(&value, 1, MPI_INT, source, tag, MPI_COMM_WORLD, result.out()), "MPI_Irecv");
  return result;
}

mpi::request send(const int& value, int destination, int tag) {
  const mpi::lock calls;
  mpi::request result;
  mpi::check(MPI_Isend(&value, 1, MPI_INT, destination, tag, MPI_COMM_WORLD, result.out()),
             "MPI_Isend");
  return result;
}

}  // namespace

TEST_CASE("an empty request is complete at once") {
  mpi::request none;
  CHECK_FALSE(none);
  CHECK(none.test().has_value());
  CHECK(none.wait().source() == cohort::any_source);
}

TEST_CASE("a message around the ring arrives with its status") {
  const int n = world().size();
  const int mine = 100 + world().rank();
  int received = -1;
  mpi::request in = receive(received, (world().rank() + n - 1) % n, 5);
  mpi::request out = send(mine, (world().rank() + 1) % n, 5);
  const auto status = in.wait();
  out.wait();
  CHECK(received == 100 + (world().rank() + n - 1) % n);
  CHECK(status.source() == (world().rank() + n - 1) % n);
  CHECK(status.tag() == 5);
  CHECK(status.count<int>() == 1);
  CHECK_FALSE(in);
}

TEST_CASE("a request that has not completed tests as nothing") {
  int received = -1;
  mpi::request in = receive(received, world().rank(), 6);
  CHECK_FALSE(in.test().has_value());
  const int value = 3;
  mpi::request out = send(value, world().rank(), 6);
  in.wait();
  CHECK(received == 3);
}

TEST_CASE("a cancelled receive says so") {
  int received = -1;
  mpi::request in = receive(received, world().rank(), 7);
  in.cancel();
  CHECK(in.wait().cancelled());
}

TEST_CASE("the destructor waits for the operation") {
  int received = -1;
  {
    const int value = 9;
    const mpi::request in = receive(received, world().rank(), 8);
    const mpi::request out = send(value, world().rank(), 8);
  }
  CHECK(received == 9);
}

TEST_CASE("a persistent request is started again and freed by its owner") {
  int received = -1;
  mpi::request in;
  MPI_Recv_init(&received, 1, MPI_INT, world().rank(), 9, MPI_COMM_WORLD, in.out());
  for (int round = 0; round < 3; ++round) {
    MPI_Start(in.out());
    mpi::request out = send(round, world().rank(), 9);
    in.wait();
    CHECK(received == round);
    CHECK(static_cast<bool>(in));
    CHECK(in.wait().source() == cohort::any_source);  // inactive now
  }
}

TEST_CASE("assigning to a request finishes the one before") {
  int first = -1;
  int second = -1;
  const int value = 4;
  mpi::request in = receive(first, world().rank(), 10);
  mpi::request out = send(value, world().rank(), 10);
  in = receive(second, world().rank(), 11);
  CHECK(first == 4);
  out = send(value, world().rank(), 11);
  in.wait();
  CHECK(second == 4);
}

TEST_CASE("an error of the operation is thrown by wait") {
  // Open MPI does not report truncation of a message to oneself, so this needs two ranks.
  const mpi::comm pair = world().dup();
  if (pair.size() < 2) return;
  if (pair.rank() == 0) {
    const std::vector<int> long_message(4, 1);
    mpi::request out;
    MPI_Isend(long_message.data(), 4, MPI_INT, 1, 1, pair.native(), out.out());
    out.wait();
  } else if (pair.rank() == 1) {
    int received = -1;
    mpi::request in;
    MPI_Irecv(&received, 1, MPI_INT, 0, 1, pair.native(), in.out());
    try {
      in.wait();
      FAIL("nothing was thrown");
    } catch (const std::system_error& problem) {
      CHECK(mpi::error_class(problem.code()) == MPI_ERR_TRUNCATE);
    }
  }
}

TEST_CASE("ranks of a node see each other's stores") {
  const mpi::comm node = world().split_node();
  const mpi::shared_window<std::atomic<int>> window(node, 4);
  REQUIRE(window.local().size() == 4);
  for (auto& counter : window.local()) CHECK(counter.load() == 0);
  MPI_Barrier(node.native());
  for (int rank = 0; rank < node.size(); ++rank) window.of(rank)[1].fetch_add(1);
  MPI_Barrier(node.native());
  CHECK(window.local()[1].load() == node.size());
  CHECK(window.local()[0].load() == 0);
  CHECK(window.of(node.rank()).data() == window.local().data());
}

TEST_CASE("parts may differ in size, and one may be empty") {
  const mpi::comm node = world().split_node();
  mpi::shared_window<double> window(node, static_cast<std::size_t>(node.rank()) * 3);
  for (int rank = 0; rank < node.size(); ++rank) {
    CHECK(window.of(rank).size() == static_cast<std::size_t>(rank) * 3);
  }
  for (double& value : window.local()) value = node.rank();
  window.sync();
  MPI_Barrier(node.native());
  window.sync();
  for (const double value : window.of(node.size() - 1)) CHECK(value == node.size() - 1);
}

TEST_CASE("a window can be left to MPI_Finalize") {
  const mpi::comm node = world().split_node();
  mpi::shared_window<std::atomic<int>> window(node, 1);
  const std::span<std::atomic<int>> kept = window.local();
  window.free_at_finalize();
  CHECK_FALSE(window);
  kept[0].store(5);
  CHECK(kept[0].load() == 5);
}

TEST_CASE("windows can be left to MPI_Finalize in any order") {
  const mpi::comm node = world().split_node();
  mpi::shared_window<int> first(node, 1);
  mpi::shared_window<int> second(node, 1);
  if (node.rank() == 0) first.free_at_finalize();
  second.free_at_finalize();
  if (first) first.free_at_finalize();  // MPI_Finalize would wait for ever
  CHECK_FALSE(first);
}

TEST_CASE("windows move") {
  const mpi::comm node = world().split_node();
  mpi::shared_window<int> first(node, 2);
  mpi::shared_window<int> second(std::move(first));
  CHECK_FALSE(first);
  CHECK(second.local().size() == 2);
  first = std::move(second);
  CHECK(first.local().size() == 2);
}
