// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "cpu_time.hpp"

#include <thread>

namespace raw_mpi {

wait_report wait(MPI_Comm comm, schedule plan) {
  wait_report report;
  const cpu_time cpu;
  for (int i = 0; i < plan.messages; ++i) {
    double sent = 0;
    MPI_Recv(&sent, 1, MPI_DOUBLE, 1, 0, comm, MPI_STATUS_IGNORE);
    report.wake_ups.push_back(now() - sent);
  }
  report.cpu_percent = cpu.percent();
  return report;
}

void send(MPI_Comm comm, schedule plan) {
  for (int i = 0; i < plan.messages; ++i) {
    // A little more each time, so that messages meet every phase of a sleeper's period.
    std::this_thread::sleep_for(plan.quiet + std::chrono::microseconds(370) * i);
    const double sent = now();
    MPI_Send(&sent, 1, MPI_DOUBLE, 0, 0, comm);
  }
}

void rest(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(comm, &request);
  for (int done = 0; done == 0;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  }
}

}  // namespace raw_mpi
