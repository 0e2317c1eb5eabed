/* Copyright (c) 2026 The cohort authors
 * SPDX-License-Identifier: BSL-1.0
 *
 * A plate with one hot edge and three cold ones: Jacobi's method, until no point changes by more
 * than 0.01 in a step. Each rank has some rows of the plate. Plain C and MPI, without cohort;
 * docs/porting.md makes ported_heat.cpp of it. */

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

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
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
    MPI_Sendrecv(now + width, width, MPI_DOUBLE, above, 1, now + (rows + 1) * width, width,
                 MPI_DOUBLE, below, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(now + rows * width, width, MPI_DOUBLE, below, 2, now, width, MPI_DOUBLE, above, 2,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    change = advance(now, next, 1, rows);
    MPI_Allreduce(MPI_IN_PLACE, &change, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
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
