// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Segments of memory, and sequences of collectives through one, between threads of one process.

#include <cohort/comm/operation.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/shm/memory.hpp>
#include <cohort/shm/plane/sequence.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace {

using cohort::shm::segment;

/// What a sequence completes.
struct call : cohort::comm::request_operation {
  call() noexcept : request_operation(&run) {}
  static void run(operation* base, action) { static_cast<call*>(base)->ended = true; }
  bool ended = false;
};

std::error_code refused(const segment::address& where) {
  try {
    const segment mapped(where);
  } catch (const std::system_error& problem) {
    return problem.code();
  }
  return {};
}

}  // namespace

TEST_CASE("a segment is seen where its address goes, until it is sealed", "[shm]") {
  segment made(100000);
  REQUIRE(made.bytes().size() == 100000);
  CHECK(std::all_of(made.bytes().begin(), made.bytes().end(),
                    [](std::byte one) { return one == std::byte{0}; }));
  const segment other(made.where());
  REQUIRE(other.bytes().data() != made.bytes().data());
  made.bytes()[99999] = std::byte{42};
  CHECK(other.bytes()[99999] == std::byte{42});
  made.seal();
  CHECK(refused(other.where()));
  // The memory stays as long as anybody has it.
  segment moved = std::move(made);
  made = segment();
  CHECK(moved.bytes()[99999] == std::byte{42});
  moved = segment();
  CHECK(other.bytes()[99999] == std::byte{42});
}

TEST_CASE("an address of something else is refused", "[shm]") {
  const segment made(4096);
  const auto not_supported = std::make_error_code(std::errc::not_supported);
  segment::address where = made.where();
  CHECK(!refused(where));
  where.host ^= 1;
  CHECK(refused(where) == not_supported);
  where = made.where();
  where.space ^= 1;
  CHECK(refused(where) == not_supported);
  where = made.where();
  where.nonce ^= 1;
  CHECK(refused(where) == not_supported);
  where = made.where();
  where.bytes += 1;
  CHECK(refused(where) == not_supported);
  where = made.where();
  where.descriptor = 0;
  CHECK(refused(where));
  where.descriptor = 1 << 20;
  CHECK(refused(where) == std::errc::no_such_file_or_directory);
  CHECK(refused(segment::address()) == not_supported);
}

TEST_CASE("memory that is not to be had is an error, not a signal", "[shm]") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK_THROWS_AS(segment(16 << 20), std::system_error);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old);
}

TEST_CASE("threads as ranks: nobody reads what another still writes", "[shm]") {
  using cohort::op_kind;
  using cohort::comm::collective_call;
  const std::size_t ranks = GENERATE(as<std::size_t>(), 2, 3, 4);
  constexpr std::size_t chunk = 1024;
  const segment memory(cohort::shm::detail::sequence::bytes(ranks, chunk));
  std::vector<int> wrong(ranks, 0);
  const auto work = [&](std::size_t rank) {
    asio::io_context io;
    auto& engine = asio::use_service<cohort::progress::engine>(io);
    cohort::shm::detail::sequence own(memory.bytes(), rank, ranks, chunk, 256, false);
    std::mt19937 same(5);
    for (int round = 0; round < 300; ++round) {
      const std::size_t count = 1 + same() % 900;
      const std::size_t root = same() % ranks;
      const bool sums = same() % 2 == 0;
      std::vector<int> data(count, static_cast<int>(rank) + round);
      call done;
      own.push({sums ? op_kind::all_reduce : op_kind::broadcast, MPI_IN_PLACE, data.data(), count,
                MPI_INT, sums ? MPI_SUM : MPI_OP_NULL, static_cast<int>(root)},
               sizeof(int), sums ? cohort::shm::reducer(MPI_INT, MPI_SUM) : cohort::shm::reducer(),
               cohort::comm::backend_completion(engine, done));
      std::vector<cohort::shm::detail::ended_call> ended;
      while (own.pending() != 0) {
        if (own.advance(ended, false) == 0) std::this_thread::yield();
      }
      for (const auto& each : ended) each.done(each.error);
      io.poll();
      io.restart();
      const auto n = static_cast<int>(ranks);
      const int expected = sums ? n * (n - 1) / 2 + n * round : static_cast<int>(root) + round;
      if (!done.ended || data != std::vector<int>(count, expected)) ++wrong[rank];
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) threads.emplace_back(work, rank);
  for (std::thread& each : threads) each.join();
  CHECK(wrong == std::vector<int>(ranks, 0));
}
