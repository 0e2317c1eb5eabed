// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <stdexcept>

namespace raw_nccl {
namespace {

void check(ncclResult_t code, const char* call) {
  if (code != ncclSuccess)
    throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(code));
}

}  // namespace

/// Asks until the call is no longer in progress.
ncclResult_t communicator::settled(ncclResult_t answer) {
  while (answer == ncclInProgress) {
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm_, &answer); asked != ncclSuccess)
      return asked;
  }
  return answer;
}

communicator::communicator(MPI_Comm world, int device) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(world, &rank);
  MPI_Comm_size(world, &size);
  ncclUniqueId id{};
  if (rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, world);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  cohort::device::check(cudaSetDevice(device), "cudaSetDevice", device);
  check(settled(ncclCommInitRankConfig(&comm_, size, id, rank, &config)), "ncclCommInitRankConfig");
  cohort::device::check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "an event",
                        device);
}

communicator::~communicator() {
  cudaEventDestroy(done_);
  if (settled(ncclCommFinalize(comm_)) == ncclSuccess) ncclCommDestroy(comm_);
}

double communicator::all_reduce(const float* in, float* out, std::size_t count, cudaStream_t on) {
  const auto start = bench::clock::now();
  check(settled(ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm_, on)), "ncclAllReduce");
  cohort::device::check(cudaEventRecord(done_, on), "cudaEventRecord", 0);
  cudaError_t answer = cudaErrorNotReady;
  while (answer == cudaErrorNotReady) answer = cudaEventQuery(done_);
  cohort::device::check(answer, "cudaEventQuery", 0);
  return bench::nanoseconds_since(start);
}

}  // namespace raw_nccl
