// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A conjugate gradient as in HPCG, without its preconditioner: 27 points to a row of the matrix, a
// box of points on each rank of a grid in three dimensions, a halo and two dot products to a step.
// The loop is written four times: with MPI alone, with calls of cohort that block, with a halo that
// travels while the inner points are computed, and as a coroutine. What computes is the same, in
// functions that are no coroutines. Prints residuals and times side by side.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cohort/cohort.hpp>
#include <cstdio>
#include <utility>
#include <vector>
#include "support/side_by_side.hpp"
#include "support/stencil27.hpp"

using support::cg_block;
using residuals = std::vector<double>;

// With MPI alone.

double sum(double mine) {
  MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return mine;
}

void raw_mpi(cg_block& b, residuals& all) {
  std::vector<MPI_Request> requests(2 * b.neighbours.size());
  double rr = sum(b.start());
  for (double& residual : all) {
    b.pack();
    MPI_Request* next = requests.data();
    for (auto& n : b.neighbours)
      MPI_Irecv(n.in.data(), int(n.in.size()), MPI_DOUBLE, n.rank, 0, MPI_COMM_WORLD, next++);
    for (auto& n : b.neighbours)
      MPI_Isend(n.out.data(), int(n.out.size()), MPI_DOUBLE, n.rank, 0, MPI_COMM_WORLD, next++);
    MPI_Waitall(int(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    b.unpack();
    b.apply(b.all());
    const double alpha = rr / sum(b.p_q());
    const double before = std::exchange(rr, sum(b.descend(alpha)));
    b.turn(rr / before);
    residual = std::sqrt(rr);
  }
}

// The same with calls that return when they are over.

double sum(const cohort::communicator& world, double mine) {
  cohort::all_reduce(world, mine, cohort::op::sum, cohort::blocking);
  return mine;
}

void blocking(const cohort::communicator& world, cg_block& b, residuals& all) {
  double rr = sum(world, b.start());
  for (double& residual : all) {
    b.pack();
    for (auto& n : b.neighbours)  // in one order everywhere, so nobody waits in a circle
      cohort::send_recv(world, n.out, n.rank, n.in, n.rank, 0, cohort::blocking);
    b.unpack();
    b.apply(b.all());
    const double alpha = rr / sum(world, b.p_q());
    const double before = std::exchange(rr, sum(world, b.descend(alpha)));
    b.turn(rr / before);
    residual = std::sqrt(rr);
  }
}

// With a halo that travels while the inner points are computed.

using halo = std::vector<cohort::future<cohort::status>>;

halo begin_halo(const cohort::communicator& world, cg_block& b) {
  halo arriving;
  b.pack();
  for (auto& n : b.neighbours)
    arriving.push_back(cohort::send_recv(world, n.out, n.rank, n.in, n.rank, 0, cohort::as_future));
  return arriving;
}

void overlapped(const cohort::communicator& world, cg_block& b, residuals& all) {
  double rr = sum(world, b.start());
  for (double& residual : all) {
    halo arriving = begin_halo(world, b);
    b.apply(b.inner());
    for (auto& each : arriving) cohort::sync_wait(world, std::move(each));
    b.unpack();
    for (const auto& face : b.rim()) b.apply(face);
    const double alpha = rr / sum(world, b.p_q());
    const double before = std::exchange(rr, sum(world, b.descend(alpha)));
    b.turn(rr / before);
    residual = std::sqrt(rr);
  }
}

// The same as a coroutine. While it waits, others on the loop go on.

asio::awaitable<void> coroutine(cohort::communicator world, cg_block& b, residuals& all) {
  double rr = b.start();
  co_await cohort::all_reduce(world, rr, cohort::op::sum);
  for (double& residual : all) {
    halo arriving = begin_halo(world, b);
    b.apply(b.inner());
    for (auto& each : arriving) co_await std::move(each);
    b.unpack();
    for (const auto& face : b.rim()) b.apply(face);
    double pq = b.p_q();
    co_await cohort::all_reduce(world, pq, cohort::op::sum);
    const double before = std::exchange(rr, b.descend(rr / pq));
    co_await cohort::all_reduce(world, rr, cohort::op::sum);
    b.turn(rr / before);
    residual = std::sqrt(rr);
  }
}

int main(int argc, char** argv) {
  int points = 64, iterations = 50, rounds = 15;
  bool shared = false;
  CLI::App app{"A conjugate gradient: with MPI alone, blocking, overlapped, and as a coroutine."};
  app.add_option("--points", points, "of a rank along each edge")->check(CLI::Range(2, 500));
  app.add_option("--iterations", iterations)->check(CLI::PositiveNumber);
  app.add_option("--rounds", rounds)->check(CLI::PositiveNumber);
  app.add_flag("--shared", shared, "sums through shared memory, not by MPI's blocking calls");
  CLI11_PARSE(app, argc, argv);

  const cohort::environment env{argc, argv, cohort::thread_level::single};
  asio::io_context io;
  using cohort::backend_choice;
  cohort::communicator_options options;
  options.backend = shared ? backend_choice::mpi : backend_choice::mpi_blocking;
  cohort::communicator world(io, options);
  if (shared)  // from the first sum on, not from the sixteenth
    world.set_backend(cohort::sync_wait(world, cohort::shm::make_backend(world)));
  const auto ranks = cohort::mpi::cartesian::balanced(world.size(), 3).dims();
  cg_block b({points, points, points}, {ranks[0], ranks[1], ranks[2]}, world.rank());

  const residuals none(std::size_t(iterations), 0.0);
  std::vector<support::way> ways{
      {"raw MPI", [&](residuals& all) { raw_mpi(b, all); }, none},
      {"blocking", [&](residuals& all) { blocking(world, b, all); }, none},
      {"overlapped", [&](residuals& all) { overlapped(world, b, all); }, none},
      {"coroutine", [&](residuals& all) { cohort::sync_wait(world, coroutine(world, b, all)); },
       none}};
  support::run_by_turns(ways, rounds);

  const bool equal = ways[2].results == ways[1].results && ways[3].results == ways[1].results;
  const double apart = support::apart(ways[0], ways[1]);
  // Shared memory adds up ((r0 + r1) + r2) + r3. MPI may add up (r0 + r1) + (r2 + r3).
  const double tolerance = shared && world.size() > 2 ? 1e-12 : 0;
  const bool good = equal && apart <= tolerance;
  if (world.rank() == 0) {
    std::printf("%d x %d x %d ranks, %d^3 points on each, %d iterations, %d rounds\n", ranks[0],
                ranks[1], ranks[2], points, iterations, rounds);
    support::print_side_by_side(ways);
    std::printf("cohort's residuals are %s, and %.1e of the first one apart from raw MPI's\n",
                equal ? "equal bit by bit" : "NOT EQUAL", apart);
    std::puts(good ? "passed" : "FAILED");
  }
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
