// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Posting with 64-bit counts, and blocks of unequal size.

#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/mpi/request.hpp>

#include <cstddef>
#include <numeric>
#include <vector>

#include "support/catch.hpp"

namespace {

namespace mpi = cohort::mpi;
namespace post = cohort::mpi::post;

const std::size_t beyond_int = (std::size_t{1} << 31) + 16;

mpi::comm_ref world() { return mpi::comm_ref::world(); }

/// Posts by the function and waits.
template <class Function>
cohort::status complete(Function function) {
  mpi::request request;
  mpi::check(function(world().native(), request.out()), "post");
  return request.wait();
}

/// Rank r has r + 1 elements.
std::vector<std::size_t> triangle() {
  std::vector<std::size_t> counts(static_cast<std::size_t>(world().size()));
  std::iota(counts.begin(), counts.end(), std::size_t{1});
  return counts;
}

std::vector<int> mine() {
  return std::vector<int>(static_cast<std::size_t>(world().rank() + 1), world().rank());
}

std::vector<int> everybodys() {
  std::vector<int> result;
  for (int rank = 0; rank < world().size(); ++rank) {
    result.insert(result.end(), static_cast<std::size_t>(rank + 1), rank);
  }
  return result;
}

}  // namespace

TEST_CASE("posted collectives of small counts complete") {
  const int n = world().size();
  int value = world().rank();
  int sum = 0;
  complete([&](MPI_Comm comm, MPI_Request* request) {
    return post::iallreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm, request);
  });
  CHECK(sum == n * (n - 1) / 2);
  complete([&](MPI_Comm comm, MPI_Request* request) {
    return post::ibcast(&value, 1, MPI_INT, n - 1, comm, request);
  });
  CHECK(value == n - 1);
}

TEST_CASE("blocks follow each other unless places are given") {
  const std::vector<std::size_t> counts{2, 0, 3};
  const mpi::blocks tight(counts, MPI_INT);
  CHECK(std::vector<int>(tight.counts(), tight.counts() + 3) == std::vector<int>{2, 0, 3});
  CHECK(std::vector<int>(tight.displacements(), tight.displacements() + 3) ==
        std::vector<int>{0, 2, 2});
  const std::vector<std::size_t> places{10, 0, 4};
  const mpi::blocks spread(counts, places, MPI_INT);
  CHECK(spread.displacements()[0] == 10);
  CHECK_THROWS_AS(mpi::blocks(counts, std::vector<std::size_t>{1}, MPI_INT), cohort::error);
}

TEST_CASE("unequal blocks are gathered, scattered and exchanged") {
  const auto counts = triangle();
  const mpi::blocks parts(counts, MPI_INT);
  const auto out = mine();
  const auto expected = everybodys();
  const auto own = static_cast<MPI_Count>(out.size());

  std::vector<int> gathered(expected.size(), -1);
  complete([&](MPI_Comm comm, MPI_Request* request) {
    return post::iallgatherv(out.data(), own, MPI_INT, gathered.data(), parts, comm, request);
  });
  CHECK(gathered == expected);

  std::vector<int> at_root(expected.size(), -1);
  complete([&](MPI_Comm comm, MPI_Request* request) {
    return post::igatherv(out.data(), own, MPI_INT, at_root.data(), parts, 0, comm, request);
  });
  if (world().rank() == 0) {
    CHECK(at_root == expected);
  }

  std::vector<int> back(out.size(), -1);
  complete([&](MPI_Comm comm, MPI_Request* request) {
    return post::iscatterv(expected.data(), parts, back.data(), own, MPI_INT, 0, comm, request);
  });
  CHECK(back == out);

  // Everybody sends rank + 1 elements to each, so everybody receives the triangle.
  const std::vector<std::size_t> same(counts.size(), out.size());
  mpi::blocks sent(same, MPI_INT);
  mpi::blocks received(counts, MPI_INT);
  const std::vector<int> copies(out.size() * counts.size(), world().rank());
  std::vector<int> exchanged(expected.size(), -1);
  complete([&](MPI_Comm comm, MPI_Request* request) {
    return post::ialltoallv(copies.data(), sent, exchanged.data(), received, comm, request);
  });
  CHECK(exchanged == expected);
}

TEST_CASE("the functions for large counts do the same where MPI has them") {
  if (!mpi::has_large_counts) return;
  const auto counts = triangle();
  mpi::blocks parts(counts, MPI_INT);
  parts.widen();
  REQUIRE(parts.large());
  const auto out = mine();
  std::vector<int> gathered(everybodys().size(), -1);
  complete([&](MPI_Comm comm, MPI_Request* request) {
    return post::iallgatherv(out.data(), static_cast<MPI_Count>(out.size()), MPI_INT,
                             gathered.data(), parts, comm, request);
  });
  CHECK(gathered == everybodys());

  mpi::blocks sent(std::vector<std::size_t>(counts.size(), out.size()), MPI_INT);
  const std::vector<int> copies(out.size() * counts.size(), world().rank());
  std::vector<int> exchanged(gathered.size(), -1);
  complete([&](MPI_Comm comm, MPI_Request* request) {  // only one side is large before
    return post::ialltoallv(copies.data(), sent, exchanged.data(), parts, comm, request);
  });
  CHECK(exchanged == everybodys());
}

TEST_CASE("uneven blocks are reduced and scattered") {
  const auto counts = triangle();
  const mpi::blocks parts(counts, MPI_INT);
  const auto in = everybodys();
  std::vector<int> out(mine().size(), -1);
  complete([&](MPI_Comm comm, MPI_Request* request) {
    return post::ireduce_scatter(in.data(), out.data(), parts, MPI_SUM, comm, request);
  });
  CHECK(out == std::vector<int>(out.size(), world().rank() * world().size()));
}

TEST_CASE("displacements beyond an int share a unit, or use the functions for large counts") {
  const std::vector<std::size_t> counts{1 << 20, 1 << 21};
  const std::vector<std::size_t> places{0, std::size_t{1} << 32};
  const mpi::blocks far(counts, places, MPI_BYTE);
  CHECK(far.large() == mpi::has_large_counts);
  CHECK(far.folded() == !mpi::has_large_counts);
  if (far.folded()) {
    CHECK(far.counts()[1] == 2);
    CHECK(far.displacements()[1] == 1 << 12);
    MPI_Request none = MPI_REQUEST_NULL;
    CHECK(post::ireduce_scatter(nullptr, nullptr, far, MPI_SUM, MPI_COMM_SELF, &none) ==
          MPI_ERR_COUNT);
  } else {
    CHECK(far.large_displacements()[1] == MPI_Aint{1} << 32);
  }
}

TEST_CASE("displacements without a common unit are refused where they cannot be told") {
  const std::vector<std::size_t> counts{1, 3};
  const std::vector<std::size_t> places{0, (std::size_t{1} << 32) + 1};
  if (mpi::has_large_counts) {
    CHECK_NOTHROW(mpi::blocks(counts, places, MPI_BYTE));
  } else {
    try {
      mpi::blocks(counts, places, MPI_BYTE);
      FAIL("nothing was thrown");
    } catch (const cohort::error& problem) {
      CHECK(problem.code() == cohort::errc::count_too_large);
    }
  }
}

TEST_CASE("a count that MPI cannot take is an error, not a truncation") {
  if (mpi::has_large_counts) return;
  MPI_Request none = MPI_REQUEST_NULL;
  CHECK(post::ibcast(nullptr, static_cast<MPI_Count>(beyond_int), MPI_BYTE, 0, MPI_COMM_SELF,
                     &none) == MPI_ERR_COUNT);
  CHECK(none == MPI_REQUEST_NULL);
}

// Needs 2 GiB and some seconds: run it by its tag.
TEST_CASE("more than 2^31 elements are sent and received", "[.][large]") {
  if (world().rank() != 0) return;
  char one = 'x';
  const mpi::datatype repeated = mpi::strided_type(1, 0, beyond_int, MPI_BYTE);
  std::vector<char> received(beyond_int, '-');
  const mpi::layout room(cohort::view_of(received));
  mpi::request in;
  mpi::request out;
  mpi::check(post::irecv(room.data(), room.count(), room.type(), 0, 1, MPI_COMM_SELF, in.out()),
             "irecv");
  mpi::check(post::isend(&one, 1, repeated.native(), 0, 1, MPI_COMM_SELF, out.out()), "isend");
  const auto status = in.wait();
  out.wait();
  CHECK(status.bytes() == beyond_int);
  CHECK(status.count<char>() == beyond_int);
  CHECK(received.front() == 'x');
  CHECK(received[beyond_int / 2] == 'x');
  CHECK(received.back() == 'x');
}
