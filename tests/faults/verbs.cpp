// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Compiled apart: what this object refers to is what the library calls (covers_everything.sh).

#include "faults/verbs.hpp"

#include <cohort/cohort.hpp>

#include <vector>

namespace faults {
namespace {

using cohort::communicator;
using cohort::no_rank;
namespace op = cohort::op;

// MPI works on these until the handlers have been called.
std::vector<double> one(1);
std::vector<double> result(1);
std::vector<double> many;
std::vector<double> results;
std::vector<double> pair(2);
std::vector<double> around(2);
std::vector<int> counts;
const std::vector<int> two_counts(2, 1);
MPI_Request request = MPI_REQUEST_NULL;

}  // namespace

// The communicator is a ring. Messages go to nobody, which posts them all the same and lets them
// complete alone.
const std::vector<verb>& verbs() {
  using world = const communicator&;
  static const std::vector<verb> list = {
      {"MPI_Ibarrier", "barrier", [](world w, outcome& o) { cohort::barrier(w, o.handler()); }},
      {"MPI_Ibcast", "broadcast",
       [](world w, outcome& o) { cohort::broadcast(w, one, 0, o.handler()); }},
      {"MPI_Iallreduce", "all_reduce",
       [](world w, outcome& o) { cohort::all_reduce(w, one, op::sum, o.handler()); }},
      {"MPI_Ireduce", "reduce",
       [](world w, outcome& o) { cohort::reduce(w, one, result, op::sum, 0, o.handler()); }},
      {"MPI_Ireduce_scatter_block", "reduce_scatter",
       [](world w, outcome& o) { cohort::reduce_scatter(w, many, result, op::sum, o.handler()); }},
      {"MPI_Ireduce_scatter", "reduce_scatter_v",
       [](world w, outcome& o) {
         cohort::reduce_scatter_v(w, many, result, counts, op::sum, o.handler());
       }},
      {"MPI_Iscan", "scan",
       [](world w, outcome& o) { cohort::scan(w, one, op::max, o.handler()); }},
      {"MPI_Iexscan", "exclusive_scan",
       [](world w, outcome& o) { cohort::exclusive_scan(w, one, result, op::max, o.handler()); }},
      {"MPI_Iallgather", "all_gather",
       [](world w, outcome& o) { cohort::all_gather(w, one, results, o.handler()); }},
      {"MPI_Iallgatherv", "all_gather_v",
       [](world w, outcome& o) { cohort::all_gather_v(w, one, results, counts, o.handler()); }},
      {"MPI_Iallgatherv", "all_gather_v",
       [](world w, outcome& o) { cohort::all_gather_v(w, one, counts, o.handler()); }},
      // Without counts: the first stage, or the second.
      {"MPI_Iallgather", "all_gather_v",
       [](world w, outcome& o) {
         cohort::all_gather_v(w, one, results, cohort::exchanged_counts, o.handler());
       }},
      {"MPI_Iallgatherv", "all_gather_v",
       [](world w, outcome& o) { cohort::all_gather_v(w, one, o.handler()); }},
      {"MPI_Igather", "gather_v",
       [](world w, outcome& o) { cohort::gather_v(w, one, 0, o.handler()); }},
      {"MPI_Ialltoall", "all_to_all_v",
       [](world w, outcome& o) {
         cohort::all_to_all_v(w, many, counts, cohort::exchanged_counts, o.handler());
       }},
      {"MPI_Igather", "gather",
       [](world w, outcome& o) { cohort::gather(w, one, results, 0, o.handler()); }},
      {"MPI_Igatherv", "gather_v",
       [](world w, outcome& o) { cohort::gather_v(w, one, results, counts, 0, o.handler()); }},
      {"MPI_Iscatter", "scatter",
       [](world w, outcome& o) { cohort::scatter(w, many, result, 0, o.handler()); }},
      {"MPI_Iscatterv", "scatter_v",
       [](world w, outcome& o) { cohort::scatter_v(w, many, result, counts, 0, o.handler()); }},
      {"MPI_Ialltoall", "all_to_all",
       [](world w, outcome& o) { cohort::all_to_all(w, many, results, o.handler()); }},
      {"MPI_Ialltoallv", "all_to_all_v",
       [](world w, outcome& o) {
         cohort::all_to_all_v(w, many, counts, results, counts, o.handler());
       }},
      {"MPI_Ineighbor_allgather", "neighbor_all_gather",
       [](world w, outcome& o) { cohort::neighbor_all_gather(w, one, around, o.handler()); }},
      {"MPI_Ineighbor_allgatherv", "neighbor_all_gather_v",
       [](world w, outcome& o) {
         cohort::neighbor_all_gather_v(w, one, around, two_counts, o.handler());
       }},
      {"MPI_Ineighbor_alltoall", "neighbor_all_to_all",
       [](world w, outcome& o) { cohort::neighbor_all_to_all(w, pair, around, o.handler()); }},
      {"MPI_Ineighbor_alltoallv", "neighbor_all_to_all_v",
       [](world w, outcome& o) {
         cohort::neighbor_all_to_all_v(w, pair, two_counts, around, two_counts, o.handler());
       }},
      {"MPI_Isend", "send",
       [](world w, outcome& o) { cohort::send(w, one, no_rank, 1, o.handler()); }},
      {"MPI_Issend", "send<synchronous>",
       [](world w, outcome& o) {
         cohort::send<cohort::send_mode::synchronous>(w, one, no_rank, 1, o.handler());
       }},
      {"MPI_Irsend", "send<ready>",
       [](world w, outcome& o) {
         cohort::send<cohort::send_mode::ready>(w, one, no_rank, 1, o.handler());
       }},
      {"MPI_Irecv", "recv",
       [](world w, outcome& o) { cohort::recv(w, result, no_rank, 1, o.handler()); }},
      {"MPI_Imrecv", "recv",
       [](world w, outcome& o) { cohort::recv<std::vector<int>>(w, no_rank, 1, o.handler()); }},
      {"MPI_Isend", "send_recv",
       [](world w, outcome& o) {
         cohort::send_recv(w, one, no_rank, result, no_rank, 1, o.handler());
       }},
      {"MPI_Irecv", "send_recv",
       [](world w, outcome& o) {
         cohort::send_recv(w, one, no_rank, result, no_rank, 1, o.handler());
       }},
      // A batch that goes waits for its sends; the handler is called by the loop.
      {"MPI_Isend", "batch",
       [](world w, outcome& o) {
         cohort::batch messages(w);
         messages.send(one, no_rank, 1);
         messages.run(o.handler());
       }},
      {"MPI_Iprobe", "probe",
       [](world w, outcome& o) { cohort::probe(w, no_rank, 1, o.handler()); }},
      {"MPI_Improbe", "matched_probe",
       [](world w, outcome& o) { cohort::matched_probe(w, no_rank, 1, o.handler()); }},
      {"MPI_Test", "wait",
       [](world w, outcome& o) {
         PMPI_Irecv(result.data(), 1, MPI_DOUBLE, MPI_PROC_NULL, 1, w.native(), &request);
         cohort::wait(w, request, o.handler());
       }},
      // Members send each other word first, so alone there is nothing to post.
      {"MPI_Irecv", "dup", [](world w, outcome& o) { w.dup(o.handler()); }, 2},
      {"MPI_Irecv", "split", [](world w, outcome& o) { w.split(0, 0, o.handler()); }, 2},
      {"MPI_Irecv", "split_node", [](world w, outcome& o) { w.split_node(o.handler()); }, 2},
      {"MPI_Irecv", "create",
       [](world w, outcome& o) {
         w.create(cohort::mpi::cartesian::balanced(w.size(), 1), o.handler());
       },
       2},
  };
  return list;
}

void prepare(const communicator& ring) {
  const auto ranks = static_cast<std::size_t>(ring.size());
  many.assign(ranks, 1);
  results.assign(ranks, 0);
  counts.assign(ranks, 1);
}

}  // namespace faults
