// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The double of NCCL between processes: each rank of MPI has a device of its own.
#include "device/nccl_support.hpp"

#include <cohort/mpi/native.hpp>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

using namespace cohort_test;

namespace {

int rank_in_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int size_of_world() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

ncclUniqueId common_id() {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  return id;
}

/// The rank's device and a communicator of all.
struct world {
  world() {
    fake_gpu::restart(ranks);
    REQUIRE(cudaSetDevice(rank) == cudaSuccess);
    stream = make_stream(rank);
    ncclConfig_t config = non_blocking("world");
    CHECK(ncclCommInitRankConfig(&comm, ranks, common_id(), rank, &config) == ncclInProgress);
    CHECK(settle(comm) == ncclSuccess);
  }
  ~world() {
    if (comm != nullptr) {
      CHECK(ncclCommFinalize(comm) == ncclInProgress);
      CHECK(settle(comm) == ncclSuccess);
      CHECK(ncclCommDestroy(comm) == ncclSuccess);
    }
    CHECK(fake_nccl::faults().empty());
    CHECK(fake_nccl::live_communicators() == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    fake_gpu::restart(0);
  }
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  /// What a collective answers at first and in the end.
  void finish(ncclResult_t answer) {
    CHECK(answer == (ranks > 1 ? ncclInProgress : ncclSuccess));
    CHECK(settle(comm) == ncclSuccess);
  }

  int rank = rank_in_world();
  int ranks = size_of_world();
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
};

/// More than one round of the double's, and no multiple of it.
constexpr std::size_t many = 40'000;

std::vector<int> counted(std::size_t size, int first, int step = 1) {
  std::vector<int> made(size);
  for (std::size_t i = 0; i < size; ++i) made[i] = first + static_cast<int>(i) * step;
  return made;
}

}  // namespace

TEST_CASE("every collective brings the right data everywhere") {
  world w;
  const auto ranks = static_cast<std::size_t>(w.ranks);
  const std::size_t count = GENERATE(std::size_t(1), many);
  const auto mine = counted(count, 1000 * w.rank);
  const array<int> in(mine, w.stream);
  SECTION("all_reduce") {
    const array<int> out(count, w.stream);
    w.finish(ncclAllReduce(in.data(), out.data(), count, ncclInt32, ncclSum, w.comm, w.stream));
    const int others = 1000 * w.ranks * (w.ranks - 1) / 2;
    CHECK(out.values() == counted(count, others, w.ranks));
  }
  SECTION("broadcast, in place") {
    const int root = w.ranks - 1;
    w.finish(ncclBroadcast(in.data(), in.data(), count, ncclInt32, root, w.comm, w.stream));
    CHECK(in.values() == counted(count, 1000 * root));
  }
  SECTION("reduce") {
    const array<int> out(std::vector<int>(count, -1), w.stream);
    w.finish(ncclReduce(in.data(), out.data(), count, ncclInt32, ncclMax, 0, w.comm, w.stream));
    CHECK(out.values() ==
          (w.rank == 0 ? counted(count, 1000 * (w.ranks - 1)) : std::vector<int>(count, -1)));
  }
  SECTION("all_gather, out of place and in place") {
    const array<int> out(count * ranks, w.stream);
    w.finish(ncclAllGather(in.data(), out.data(), count, ncclInt32, w.comm, w.stream));
    std::vector<int> expected;
    for (int i = 0; i < w.ranks; ++i) {
      const auto part = counted(count, 1000 * i);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    CHECK(out.values() == expected);
    std::vector<int> only_mine(count * ranks, -1);
    std::copy(mine.begin(), mine.end(), only_mine.begin() + w.rank * std::ptrdiff_t(count));
    const array<int> both(only_mine, w.stream);
    w.finish(ncclAllGather(both.data() + count * static_cast<std::size_t>(w.rank), both.data(),
                           count, ncclInt32, w.comm, w.stream));
    CHECK(both.values() == expected);
  }
  SECTION("reduce_scatter, out of place and in place") {
    const array<int> all(counted(count * ranks, w.rank), w.stream);
    const array<int> out(count, w.stream);
    w.finish(
        ncclReduceScatter(all.data(), out.data(), count, ncclInt32, ncclSum, w.comm, w.stream));
    const int first = w.ranks * (w.ranks - 1) / 2 + w.ranks * w.rank * static_cast<int>(count);
    CHECK(out.values() == counted(count, first, w.ranks));
    w.finish(ncclReduceScatter(all.data(), all.data() + count * static_cast<std::size_t>(w.rank),
                               count, ncclInt32, ncclSum, w.comm, w.stream));
    auto part = all.values();
    part.erase(part.begin(), part.begin() + w.rank * std::ptrdiff_t(count));
    part.resize(count);
    CHECK(part == counted(count, first, w.ranks));
  }
  SECTION("all_to_all, gather and scatter") {
    const array<int> all(counted(count * ranks, 1'000'000 * w.rank), w.stream);
    const array<int> out(std::vector<int>(count * ranks, -1), w.stream);
    w.finish(ncclAlltoAll(all.data(), out.data(), count, ncclInt32, w.comm, w.stream));
    std::vector<int> expected;
    for (int i = 0; i < w.ranks; ++i) {
      const auto part = counted(count, 1'000'000 * i + w.rank * static_cast<int>(count));
      expected.insert(expected.end(), part.begin(), part.end());
    }
    CHECK(out.values() == expected);
    const int root = w.ranks - 1;
    w.finish(ncclScatter(all.data(), out.data(), count, ncclInt32, root, w.comm, w.stream));
    auto part = out.values();
    part.resize(count);
    CHECK(part == counted(count, 1'000'000 * root + w.rank * static_cast<int>(count)));
    w.finish(ncclGather(in.data(), out.data(), count, ncclInt32, root, w.comm, w.stream));
    if (w.rank == root) {
      const auto got = out.values();
      CHECK(got[0] == 0);
      CHECK(got.back() == 1000 * root + static_cast<int>(count) - 1);
    }
  }
}

TEST_CASE("messages of a group go together, large ones and to oneself too") {
  world w;
  const auto mine = counted(many, 1000 * w.rank);
  const array<int> in(mine, w.stream);
  const array<int> out(many * static_cast<std::size_t>(w.ranks), w.stream);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int i = 0; i < w.ranks; ++i) {
    CHECK(ncclSend(in.data(), many, ncclInt32, i, w.comm, w.stream) == ncclSuccess);
    CHECK(ncclRecv(out.data() + many * static_cast<std::size_t>(i), many, ncclInt32, i, w.comm,
                   w.stream) == ncclSuccess);
  }
  CHECK(ncclGroupEnd() == ncclInProgress);
  CHECK(settle(w.comm) == ncclSuccess);
  std::vector<int> expected;
  for (int i = 0; i < w.ranks; ++i) {
    const auto part = counted(many, 1000 * i);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  CHECK(out.values() == expected);
}

TEST_CASE("splitting makes communicators of those with one color, in the order of keys") {
  world w;
  ncclComm_t half = nullptr;
  const int color = w.rank % 2;
  CHECK(ncclCommSplit(w.comm, color, -w.rank, &half, nullptr) == ncclInProgress);
  CHECK(settle(w.comm) == ncclSuccess);
  REQUIRE(half != nullptr);
  CHECK(settle(half) == ncclSuccess);
  int count = 0;
  int rank = -1;
  CHECK(ncclCommCount(half, &count) == ncclSuccess);
  CHECK(ncclCommUserRank(half, &rank) == ncclSuccess);
  CHECK(count == (w.ranks + 1 - color) / 2);
  CHECK(rank == count - 1 - w.rank / 2);
  const array<int> value(std::vector<int>{w.rank}, w.stream);
  CHECK(ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, half, w.stream) ==
        (count > 1 ? ncclInProgress : ncclSuccess));
  CHECK(settle(half) == ncclSuccess);
  int sum = 0;
  for (int i = color; i < w.ranks; i += 2) sum += i;
  CHECK(value.values()[0] == sum);
  CHECK(ncclCommDestroy(half) == ncclSuccess);  // not finalized: does it in the call
  ncclComm_t none = w.comm;
  CHECK(ncclCommSplit(w.comm, NCCL_SPLIT_NOCOLOR, 0, &none, nullptr) == ncclInProgress);
  CHECK(none == nullptr);
  CHECK(settle(w.comm) == ncclSuccess);
}
