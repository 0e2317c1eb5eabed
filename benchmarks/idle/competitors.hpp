// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What this benchmark compares: waiting in cohort's loop, and waiting in `MPI_Recv`.

#include <cohort/comm/operation.hpp>

#include <vector>

/// What a wait has cost, and how long after the sending the program went on.
struct wait_report {
  double cpu_percent = 0;  ///< of one core, user and system
  double laps = 0;
  double parked = 0;             ///< times the engine went to sleep until a doorbell rings
  std::vector<double> wake_ups;  ///< nanoseconds
};

/// Rank 0 waits, rank 1 sends the time now and then, after `quiet`.
struct schedule {
  std::chrono::milliseconds quiet;
  int messages;
};

namespace raw_mpi {

wait_report wait(MPI_Comm comm, schedule plan);
void send(MPI_Comm comm, schedule plan);
/// Waits for the other ranks without keeping the core.
void rest(MPI_Comm comm);

}  // namespace raw_mpi

namespace with_cohort {

/// Runs the loop beside a timer, with nothing pending.
wait_report wait_for_timer(asio::io_context& io, std::chrono::milliseconds duration);
wait_report wait_for_messages(const cohort::communicator& world, asio::io_context& io,
                              schedule plan);
/// The same with control receives, which let the engine park.
wait_report wait_for_control(const cohort::communicator& world, asio::io_context& io,
                             schedule plan);
void send_control(const cohort::communicator& world, asio::io_context& io, schedule plan);
/// In a scope of a task graph: rank 0 awaits values that rank 1 puts.
wait_report wait_in_scope(const cohort::communicator& world, asio::io_context& io, schedule plan);
void put_in_scope(const cohort::communicator& world, asio::io_context& io, schedule plan);
/// The same for tasks that nobody spawns: how long after the beginning of an await its error comes,
/// while rank 1 has slept at the end of its window.
wait_report wait_for_nobody(const cohort::communicator& world, asio::io_context& io, schedule plan);
void spawn_nothing(const cohort::communicator& world, asio::io_context& io, schedule plan);

}  // namespace with_cohort
