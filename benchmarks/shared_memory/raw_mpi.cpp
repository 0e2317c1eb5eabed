// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

namespace raw_mpi {

namespace {

using cohort::op_kind;

MPI_Request begin(MPI_Comm comm, collective& what) {
  MPI_Request request = MPI_REQUEST_NULL;
  const float* const in = what.in.data();
  float* const out = what.out.data();
  const int count = static_cast<int>(what.count);
  constexpr int root = 0;
  switch (what.kind) {
    case op_kind::all_reduce:
      MPI_Iallreduce(in, out, count, MPI_FLOAT, MPI_SUM, comm, &request);
      break;
    case op_kind::reduce:
      MPI_Ireduce(in, out, count, MPI_FLOAT, MPI_SUM, root, comm, &request);
      break;
    case op_kind::broadcast:
      MPI_Ibcast(out, count, MPI_FLOAT, root, comm, &request);
      break;
    case op_kind::all_gather:
      MPI_Iallgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, comm, &request);
      break;
    case op_kind::gather:
      MPI_Igather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, root, comm, &request);
      break;
    case op_kind::scatter:
      MPI_Iscatter(in, count, MPI_FLOAT, out, count, MPI_FLOAT, root, comm, &request);
      break;
    case op_kind::reduce_scatter:
      MPI_Ireduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, comm, &request);
      break;
    case op_kind::all_to_all:
      MPI_Ialltoall(in, count, MPI_FLOAT, out, count, MPI_FLOAT, comm, &request);
      break;
    default:
      MPI_Ibarrier(comm, &request);
  }
  return request;
}

void run(MPI_Comm comm, collective& what) {
  const float* const in = what.in.data();
  float* const out = what.out.data();
  const int count = static_cast<int>(what.count);
  constexpr int root = 0;
  switch (what.kind) {
    case op_kind::all_reduce:
      MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, comm);
      break;
    case op_kind::reduce:
      MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, root, comm);
      break;
    case op_kind::broadcast:
      MPI_Bcast(out, count, MPI_FLOAT, root, comm);
      break;
    case op_kind::all_gather:
      MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, comm);
      break;
    case op_kind::gather:
      MPI_Gather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, root, comm);
      break;
    case op_kind::scatter:
      MPI_Scatter(in, count, MPI_FLOAT, out, count, MPI_FLOAT, root, comm);
      break;
    case op_kind::reduce_scatter:
      MPI_Reduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, comm);
      break;
    case op_kind::all_to_all:
      MPI_Alltoall(in, count, MPI_FLOAT, out, count, MPI_FLOAT, comm);
      break;
    default:
      MPI_Barrier(comm);
  }
}

}  // namespace

double nonblocking(MPI_Comm comm, collective& what, int rounds, bool fresh) {
  stopwatch watch(comm, what, fresh);
  for (int i = 0; i < rounds; ++i) {
    watch.before_round();
    MPI_Request request = begin(comm, what);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    watch.after_round();
  }
  return watch.taken() / rounds;
}

double blocking(MPI_Comm comm, collective& what, int rounds, bool fresh) {
  stopwatch watch(comm, what, fresh);
  for (int i = 0; i < rounds; ++i) {
    watch.before_round();
    run(comm, what);
    watch.after_round();
  }
  return watch.taken() / rounds;
}

}  // namespace raw_mpi
