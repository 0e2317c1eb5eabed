// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/raw_ping_pong.hpp"
#include "support/statistics.hpp"

#include <array>

namespace raw_mpi {

double blocking_all_reduce(MPI_Comm comm, std::vector<double>& buffer, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    MPI_Allreduce(MPI_IN_PLACE, buffer.data(), static_cast<int>(buffer.size()), MPI_DOUBLE, MPI_MAX,
                  comm);
  }
  return bench::nanoseconds_since(start) / rounds;
}

double all_reduce(MPI_Comm comm, std::vector<double>& buffer, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(MPI_IN_PLACE, buffer.data(), static_cast<int>(buffer.size()), MPI_DOUBLE,
                   MPI_MAX, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  return bench::nanoseconds_since(start) / rounds;
}

double ping_pong(MPI_Comm comm, std::vector<double>& buffer, int rounds) {
  return bench::raw_ping_pong(comm, buffer, rounds);
}

double nonblocking_ping_pong(MPI_Comm comm, std::vector<double>& buffer, int rounds) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  const int count = static_cast<int>(buffer.size());
  MPI_Request request = MPI_REQUEST_NULL;
  const auto send = [&] {
    MPI_Isend(buffer.data(), count, MPI_DOUBLE, 1 - rank, 0, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  const auto recv = [&] {
    MPI_Irecv(buffer.data(), count, MPI_DOUBLE, 1 - rank, 0, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    if (rank == 0) send();
    recv();
    if (rank == 1) send();
  }
  return bench::nanoseconds_since(start) / rounds;
}

double halo(MPI_Comm comm, std::vector<double>& buffer, int rounds) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  std::array<MPI_Request, 12> requests{};
  const int count = static_cast<int>(buffer.size() / requests.size());
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    for (int k = 0; k < 6; ++k) {
      MPI_Irecv(&buffer[k * count], count, MPI_DOUBLE, 1 - rank, k, comm, &requests[k]);
    }
    for (int k = 0; k < 6; ++k) {
      MPI_Isend(&buffer[(6 + k) * count], count, MPI_DOUBLE, 1 - rank, k, comm, &requests[6 + k]);
    }
    MPI_Waitall(12, requests.data(), MPI_STATUSES_IGNORE);
  }
  return bench::nanoseconds_since(start) / rounds;
}

double persistent_halo(MPI_Comm comm, std::vector<double>& buffer, int rounds) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  std::array<MPI_Request, 12> requests{};
  const int count = static_cast<int>(buffer.size() / requests.size());
  for (int k = 0; k < 6; ++k) {
    MPI_Recv_init(&buffer[k * count], count, MPI_DOUBLE, 1 - rank, k, comm, &requests[k]);
    MPI_Send_init(&buffer[(6 + k) * count], count, MPI_DOUBLE, 1 - rank, k, comm, &requests[6 + k]);
  }
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    MPI_Startall(12, requests.data());
    MPI_Waitall(12, requests.data(), MPI_STATUSES_IGNORE);
  }
  const double time = bench::nanoseconds_since(start) / rounds;
  for (MPI_Request& request : requests) MPI_Request_free(&request);
  return time;
}

}  // namespace raw_mpi
