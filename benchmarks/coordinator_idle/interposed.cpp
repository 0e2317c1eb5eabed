// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "interposed.hpp"

#include "idle/cpu_time.hpp"

#include <cohort/mpi/native.hpp>

namespace {

std::uint64_t sent = 0;
std::uint64_t started = 0;
bool watching = false;
double seen_at = 0;

int note(int return_code, bool found) {
  if (watching && found) {
    watching = false;
    seen_at = now();
  }
  return return_code;
}

}  // namespace

namespace interposed {

std::uint64_t messages() { return sent; }
std::uint64_t collectives() { return started; }
void watch() {
  seen_at = 0;
  watching = true;
}
double seen() { return seen_at; }

}  // namespace interposed

// These stand before the functions of the MPI library, which has the same under PMPI names.
extern "C" {

int MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  ++sent;
  return PMPI_Send(data, count, type, to, tag, comm);
}
int MPI_Ssend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  ++sent;
  return PMPI_Ssend(data, count, type, to, tag, comm);
}
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  ++sent;
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
int MPI_Issend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request) {
  ++sent;
  return PMPI_Issend(data, count, type, to, tag, comm, request);
}
int MPI_Irsend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request) {
  ++sent;
  return PMPI_Irsend(data, count, type, to, tag, comm, request);
}
int MPI_Start(MPI_Request* request) {
  ++sent;
  return PMPI_Start(request);
}
int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  ++started;
  return PMPI_Allreduce(in, out, count, type, op, comm);
}
int MPI_Iallreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
  ++started;
  return PMPI_Iallreduce(in, out, count, type, op, comm, request);
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request* request) {
  ++started;
  return PMPI_Ibcast(data, count, type, root, comm, request);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  ++started;
  return PMPI_Ibarrier(comm, request);
}
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  const int return_code = PMPI_Test(request, flag, status);
  return note(return_code, *flag != 0);
}
int MPI_Testsome(int count, MPI_Request* requests, int* found, int* indices, MPI_Status* statuses) {
  const int return_code = PMPI_Testsome(count, requests, found, indices, statuses);
  return note(return_code, *found > 0);
}

}  // extern "C"
