// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The double of NCCL between processes: each rank of MPI has a device of its own.
#include "gpu/device/nccl_support.hpp"

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

TEST_CASE("blocking communicators between processes answer when all have called") {
  fake_gpu::restart(size_of_world());
  REQUIRE(cudaSetDevice(rank_in_world()) == cudaSuccess);
  cudaStream_t stream = make_stream(rank_in_world());
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitRank(&comm, size_of_world(), common_id(), rank_in_world()) == ncclSuccess);
  const array<int> value(std::vector<int>{1}, stream);
  CHECK(ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, comm, stream) ==
        ncclSuccess);
  CHECK(value.values()[0] == size_of_world());
  ncclComm_t split = nullptr;
  CHECK(ncclCommSplit(comm, 0, 0, &split, nullptr) == ncclSuccess);
  CHECK(ncclCommFinalize(split) == ncclSuccess);
  CHECK(ncclCommDestroy(split) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(fake_nccl::live_communicators() == 0);
  CHECK(fake_nccl::faults().empty());
  MPI_Barrier(MPI_COMM_WORLD);
  fake_gpu::restart(0);
}

TEST_CASE("several devices in each of several processes") {
  fake_gpu::restart(2 * size_of_world());
  const ncclUniqueId id = common_id();
  const int ranks = 2 * size_of_world();
  const int first = 2 * rank_in_world();
  ncclComm_t comms[2];
  cudaStream_t streams[2];
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int i = 0; i < 2; ++i) {
    streams[i] = make_stream(first + i);
    REQUIRE(cudaSetDevice(first + i) == cudaSuccess);
    ncclConfig_t config = non_blocking();
    CHECK(ncclCommInitRankConfig(&comms[i], ranks, id, first + i, &config) == ncclSuccess);
  }
  CHECK(ncclGroupEnd() == ncclInProgress);
  for (ncclComm_t comm : comms) CHECK(settle(comm) == ncclSuccess);
  {
    const array<int> left(std::vector<int>{first}, streams[0]);
    const array<int> right(std::vector<int>{first + 1}, streams[1]);
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < 2; ++i) {
      int* at = i == 0 ? left.data() : right.data();
      CHECK(ncclAllReduce(at, at, 1, ncclInt32, ncclSum, comms[i], streams[i]) == ncclSuccess);
    }
    CHECK(ncclGroupEnd() == ncclInProgress);
    for (ncclComm_t comm : comms) CHECK(settle(comm) == ncclSuccess);
    CHECK(left.values()[0] == ranks * (ranks - 1) / 2);
    CHECK(right.values()[0] == ranks * (ranks - 1) / 2);
  }
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(fake_nccl::faults().empty());
  MPI_Barrier(MPI_COMM_WORLD);
  fake_gpu::restart(0);
}

TEST_CASE("processes on the same device are refused, unless its bus ids differ") {
  fake_gpu::restart(1);
  const bool differ = GENERATE(false, true);
  if (differ) fake_gpu::set_bus_id(0, 100 + rank_in_world());
  const bool refused = size_of_world() > 1 && !differ;
  ncclConfig_t config = non_blocking();
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRankConfig(&comm, size_of_world(), common_id(), rank_in_world(), &config) ==
        ncclInProgress);
  CHECK(settle(comm) == (refused ? ncclInvalidUsage : ncclSuccess));
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  MPI_Barrier(MPI_COMM_WORLD);
  fake_gpu::restart(0);
}

TEST_CASE("a mismatch between processes is reported by all of them") {
  world w;
  if (w.ranks == 1) return;
  const array<int> values(std::vector<int>(8, 1), w.stream);
  CHECK(ncclAllReduce(values.data(), values.data(), w.rank == 0 ? 1 : 2, ncclInt32, ncclSum, w.comm,
                      w.stream) == ncclInProgress);
  CHECK(becomes([&] { return state(w.comm) == ncclInvalidUsage; }));
  const std::string text = ncclGetLastError(w.comm);
  CHECK(text.find("all_reduce of 2 i32, sum") != std::string::npos);
  CHECK(ncclCommAbort(w.comm) == ncclSuccess);
  w.comm = nullptr;
  CHECK(becomes([&] { return idle(w.stream); }));
}

TEST_CASE("a cycle of communicators over processes is found by each of them") {
  world w;
  if (w.ranks < 3) return;
  // Communicator i is of the ranks i and i + 1, and each rank calls its own first.
  std::vector<ncclComm_t> comms(std::size_t(w.ranks), nullptr);
  for (int i = 0; i < w.ranks; ++i) {
    const int next = (i + 1) % w.ranks;
    const bool member = w.rank == i || w.rank == next;
    const std::string name = std::string("ring ") + static_cast<char>('a' + i);
    ncclConfig_t config = non_blocking(name.c_str());
    CHECK(ncclCommSplit(w.comm, member ? 0 : NCCL_SPLIT_NOCOLOR, 0, &comms[std::size_t(i)],
                        &config) == ncclInProgress);
    CHECK(settle(w.comm) == ncclSuccess);
    if (member) CHECK(settle(comms[std::size_t(i)]) == ncclSuccess);
  }
  const array<int> value(std::vector<int>{1}, w.stream);
  const ncclComm_t own = comms[std::size_t(w.rank)];
  const ncclComm_t other = comms[std::size_t((w.rank + w.ranks - 1) % w.ranks)];
  const auto call = [&](ncclComm_t comm) {
    CHECK(ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, comm, w.stream) ==
          ncclInProgress);
    CHECK(settle(comm) == ncclSuccess);
  };
  // In order, once: the last rank calls that of the first rank before its own.
  call(w.rank == w.ranks - 1 ? other : own);
  call(w.rank == w.ranks - 1 ? own : other);
  CHECK(becomes([&] { return idle(w.stream); }));
  CHECK(fake_nccl::cycles().empty());
  MPI_Barrier(MPI_COMM_WORLD);
  call(own);
  call(other);
  CHECK(becomes([] { return !fake_nccl::cycles().empty(); }));
  std::string expected = "ring a";
  for (int i = 1; i < w.ranks; ++i) expected += std::string(" waits for ring ") + char('a' + i);
  expected += " waits for ring a";
  CHECK(fake_nccl::cycles().front() == expected);
  MPI_Barrier(MPI_COMM_WORLD);  // or an abort would end the others' search
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(ncclCommAbort(own) == ncclSuccess);
  CHECK(ncclCommAbort(other) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(becomes([&] { return idle(w.stream); }));
}
