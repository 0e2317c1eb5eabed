// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A file that takes a communicator and blocks. Other files of the program await on the same one.

#include "collectives/light.hpp"

#include <cohort/blocking.hpp>

#include <numeric>
#include <system_error>
#include <vector>

#if defined(ASIO_VERSION) || defined(ASIO_DETAIL_CONFIG_HPP)
#error "a file that blocks reads Asio"
#endif

namespace blocking_test {

using cohort::blocking;
using cohort::communicator;
namespace op = cohort::op;

void each_kind(const communicator& world, const std::function<void(bool)>& check) {
  const int n = world.size();
  const int rank = world.rank();
  const auto ranks = static_cast<std::size_t>(n);
  const int sum = n * (n + 1) / 2;
  std::vector<int> counted(ranks);
  std::iota(counted.begin(), counted.end(), 0);
  const int last = n - 1;

  cohort::barrier(world, blocking);
  int mine = rank + 1;
  int out = -1;
  cohort::all_reduce(world, mine, out, op::sum, blocking);
  check(out == sum);
  cohort::all_reduce(world, mine, op::max, blocking);
  check(mine == n);
  const std::vector<double> made =
      cohort::all_reduce(world, std::vector<double>(3, 2.0), op::average, blocking);
  check(made == std::vector<double>(3, 2.0));
  mine = rank + 1;
  cohort::reduce(world, mine, out, op::sum, last, blocking);
  check(rank != last || out == sum);
  cohort::reduce(world, mine, op::sum, last, blocking);
  check(mine == (rank == last ? sum : rank + 1));
  std::vector<int> many(ranks, rank + 1);
  cohort::reduce_scatter(world, many, out, op::sum, blocking);
  check(out == sum);
  int sent = rank == last ? 42 : 0;
  cohort::broadcast(world, sent, last, blocking);
  check(sent == 42);
  std::vector<int> all(ranks, -1);
  cohort::all_gather(world, rank, all, blocking);
  check(all == counted);
  all.assign(ranks, -1);
  cohort::gather(world, rank, all, last, blocking);
  check(rank != last || all == counted);
  cohort::scatter(world, counted, out, last, blocking);
  check(out == rank);
  cohort::all_to_all(world, std::vector<int>(ranks, rank), all, blocking);
  check(all == counted);
  std::vector<int> spread{rank, -1, rank, -1};
  cohort::all_reduce(world, cohort::strided_view(spread.data(), 2, 1, 2), op::sum, blocking);
  check(spread == std::vector<int>{n * (n - 1) / 2, -1, n * (n - 1) / 2, -1});
  cohort::scan(world, rank, out, op::sum, blocking);
  check(out == rank * (rank + 1) / 2);
  const auto [values, counts, given] =
      cohort::all_gather_v(world, std::vector<int>(1, rank), blocking);
  check(values == counted && counts.size() == ranks && given.front() == rank);
}

void each_message(const communicator& world, const std::function<void(bool)>& check) {
  const int n = world.size();
  const int right = (world.rank() + 1) % n;
  const int left = (world.rank() + n - 1) % n;
  const std::vector<double> mine(100, world.rank());
  const std::vector<double> theirs(100, left);
  std::vector<double> in(100, -1);

  const cohort::status found = cohort::send_recv(world, mine, right, in, left, 7, blocking);
  check(in == theirs && found.source() == left && found.count<double>() == 100);
  if (world.rank() != 0) {
    cohort::recv(world, in, left, 8, blocking);
    check(in == std::vector<double>(100, 1 + left));
  }
  cohort::send(world, std::vector<double>(100, 1 + world.rank()), right, 8, blocking);
  if (world.rank() == 0) {
    const auto [made, its] = cohort::recv<std::vector<double>>(world, left, 8, blocking);
    check(made == std::vector<double>(100, 1 + left) && its.tag() == 8);
  }
  MPI_Request request = MPI_REQUEST_NULL;  // of MPI's own functions
  MPI_Ibarrier(world.native(), &request);
  cohort::wait(world, request, blocking);
  check(request == MPI_REQUEST_NULL);
  try {
    cohort::send(world, mine, n, 7, blocking);
    check(false);
  } catch (const std::system_error& failed) {
    check(failed.code() == cohort::errc::bad_rank);
  }
}

}  // namespace blocking_test

// What such a file has included and called does not keep it from reading Asio after that.
#include <cohort/comm.hpp>

namespace blocking_test {

asio::awaitable<int> size_by_sum(communicator world) {
  communicator copy(world);
  int sum = 1;
  co_await cohort::all_reduce(copy, sum, op::sum);
  co_return sum;
}

}  // namespace blocking_test
