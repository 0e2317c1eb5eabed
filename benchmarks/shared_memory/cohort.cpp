// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

#include <cohort/collectives.hpp>

namespace with_cohort {

namespace {

using cohort::op_kind;

asio::awaitable<void> movement(cohort::communicator comm, collective& what, int rounds,
                               stopwatch& watch) {
  constexpr int root = 0;
  for (int i = 0; i < rounds; ++i) {
    watch.before_round();
    switch (what.kind) {
      case op_kind::broadcast:
        co_await cohort::broadcast(comm, what.out, root);
        break;
      case op_kind::all_gather:
        co_await cohort::all_gather(comm, what.in, what.out);
        break;
      case op_kind::gather:
        co_await cohort::gather(comm, what.in, what.out, root);
        break;
      case op_kind::scatter:
        co_await cohort::scatter(comm, what.in, what.out, root);
        break;
      case op_kind::all_to_all:
        co_await cohort::all_to_all(comm, what.in, what.out);
        break;
      default:
        co_await cohort::barrier(comm);
    }
    watch.after_round();
  }
}

asio::awaitable<void> reduction(cohort::communicator comm, collective& what, int rounds,
                                stopwatch& watch) {
  constexpr int root = 0;
  for (int i = 0; i < rounds; ++i) {
    watch.before_round();
    switch (what.kind) {
      case op_kind::reduce:
        co_await cohort::reduce(comm, what.in, what.out, cohort::op::sum, root);
        break;
      case op_kind::reduce_scatter:
        co_await cohort::reduce_scatter(comm, what.in, what.out, cohort::op::sum);
        break;
      default:
        co_await cohort::all_reduce(comm, what.in, what.out, cohort::op::sum);
    }
    watch.after_round();
  }
}

}  // namespace

asio::awaitable<double> awaited(cohort::communicator comm, collective& what, int rounds,
                                bool fresh) {
  stopwatch watch(comm.native(), what, fresh);
  if (cohort::is_reduction(what.kind)) {
    co_await reduction(comm, what, rounds, watch);
  } else {
    co_await movement(comm, what, rounds, watch);
  }
  co_return watch.taken() / rounds;
}

}  // namespace with_cohort
