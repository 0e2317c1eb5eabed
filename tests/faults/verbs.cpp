// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Compiled apart: what this object refers to is what the library calls (covers_everything.sh).

#include "faults/verbs.hpp"

#include <cohort/cohort.hpp>

#include <array>
#include <vector>

namespace faults {
namespace {

using cohort::communicator;

// MPI reads and writes here until the handlers have been called.
std::array<double, 8> in;
std::array<double, 64> out;
double number = 0;

}  // namespace

// Messages go to nobody, which posts them all the same and lets them complete alone.
const std::vector<verb>& verbs() {
  using cohort::no_rank;
  static const std::vector<verb> list = {
      {"MPI_Iallreduce", "all_reduce",
       [](const communicator& world, outcome& done) {
         cohort::all_reduce(world, number, cohort::op::sum, done.handler());
       }},
      {"MPI_Ibcast", "broadcast",
       [](const communicator& world, outcome& done) {
         cohort::broadcast(world, number, 0, done.handler());
       }},
      {"MPI_Ibarrier", "barrier",
       [](const communicator& world, outcome& done) { cohort::barrier(world, done.handler()); }},
      {"MPI_Isend", "send",
       [](const communicator& world, outcome& done) {
         cohort::send(world, in, no_rank, 1, done.handler());
       }},
      {"MPI_Issend", "send<synchronous>",
       [](const communicator& world, outcome& done) {
         cohort::send<cohort::send_mode::synchronous>(world, in, no_rank, 1, done.handler());
       }},
      {"MPI_Irsend", "send<ready>",
       [](const communicator& world, outcome& done) {
         cohort::send<cohort::send_mode::ready>(world, in, no_rank, 1, done.handler());
       }},
      {"MPI_Irecv", "recv",
       [](const communicator& world, outcome& done) {
         cohort::recv(world, out, no_rank, 1, done.handler());
       }},
      {"MPI_Imrecv", "recv",
       [](const communicator& world, outcome& done) {
         cohort::recv<std::vector<int>>(world, no_rank, 1, done.handler());
       }},
      {"MPI_Comm_idup", "dup",
       [](const communicator& world, outcome& done) { world.dup(done.handler()); }},
  };
  return list;
}

}  // namespace faults
