/* Copyright (c) 2026 The cohort authors
 * SPDX-License-Identifier: BSL-1.0
 *
 * A plate with one hot edge and three cold ones: Jacobi's method, until no point changes by more
 * than 0.01 in a step. Each rank has some rows of the plate. raw_mpi_heat.c as docs/porting.md
 * brings cohort into it. */

#include <cohort/cohort.hpp>

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { width = 66, height = 64, most_steps = 2000 };

/* Computes rows `from` to `to` and returns the largest change in them. */
static double advance(const double* now, double* next, int from, int to) {
  double change = 0;
  for (int r = from; r <= to; ++r) {
    for (int i = r * width + 1; i < r * width + width - 1; ++i) {
      next[i] = 0.25 * (now[i - width] + now[i - 1] + now[i + 1] + now[i + width]);
      change = fmax(change, fabs(next[i] - now[i]));
    }
  }
  return change;
}

/* The left edge is hot. */
static void heat(double* plate, int rows) {
  for (int r = 0; r < rows + 2; ++r) plate[r * width] = 100;
}

static std::span<double> row(double* plate, int r) { return {plate + r * width, width}; }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  asio::io_context io;
  const cohort::communicator world(io);
  if (size > height / 2) {
    if (rank == 0) fprintf(stderr, "%d ranks are too many for %d rows\n", size, height);
    MPI_Finalize();
    return EXIT_FAILURE;
  }
  const int above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
  const int below = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;

  /* The rows of this rank are 1 to `rows`; 0 and rows + 1 are the halo, or the edge. */
  const int rows = height * (rank + 1) / size - height * rank / size;
  double* now = (double*)calloc((size_t)(rows + 2) * width, sizeof(double));
  double* next = (double*)calloc((size_t)(rows + 2) * width, sizeof(double));
  heat(now, rows);
  heat(next, rows);

  int step = 0;
  double change = 1;
  while (step < most_steps && change > 0.01) {
    auto up = cohort::send_recv(world, row(now, 1), above, row(now, rows + 1), below, 1,
                                cohort::as_future);
    auto down =
        cohort::send_recv(world, row(now, rows), below, row(now, 0), above, 2, cohort::as_future);
    change = advance(now, next, 2, rows - 1);
    cohort::sync_wait(world, std::move(up));
    cohort::sync_wait(world, std::move(down));
    change = fmax(change, advance(now, next, 1, 1));
    change = fmax(change, advance(now, next, rows, rows));
    cohort::all_reduce(world, change, cohort::op::max, cohort::blocking);
    double* const last = now;
    now = next;
    next = last;
    if (++step % 500 == 0 && rank == 0) printf("step %d: %.6e\n", step, change);
  }

  /* One rank has the point in the middle. */
  const int middle = height / 2 - height * rank / size;
  double degrees = middle >= 1 && middle <= rows ? now[middle * width + width / 2] : 0;
  MPI_Allreduce(MPI_IN_PLACE, &degrees, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) printf("%d steps, %.6f degrees in the middle\n", step, degrees);
  free(now);
  free(next);
  MPI_Finalize();
  return EXIT_SUCCESS;
}
