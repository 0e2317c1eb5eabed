// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

namespace with_cohort {
namespace {

namespace graph = cohort::graph;
using graph::take;

int on_diagonals(graph::indices where, int ranks) {
  return static_cast<int>((where[0] + where[where.size() > 1 ? 1 : 0]) % ranks);
}

asio::awaitable<void> factorise(graph::scope& s, problem what, outcome* made) {
  const int n = what.tiles;
  const graph::placement grid = what.by_columns
                                    ? graph::placement(graph::block_cyclic(1, what.ranks))
                                    : graph::placement::by<&on_diagonals>();
  auto A = s.tasks<&support::update>("A", grid);
  auto potrf = s.tasks<&support::factor>("potrf", grid);
  auto trsm = s.tasks<&support::solve>("trsm", grid);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j <= i; ++j) {
      if (A(i, j, 0).here()) A(i, j, 0).put(what.load(i, j));
    }
  }
  for (int k = 0; k < n; ++k) {
    potrf(k).spawn(take(A(k, k, k)));
    for (int i = k + 1; i < n; ++i) trsm(i, k).spawn(potrf(k), take(A(i, k, k)));
    for (int i = k + 1; i < n; ++i) {
      for (int j = k + 1; j <= i; ++j) {
        A(i, j, k + 1).spawn(trsm(i, k), trsm(j, k), take(A(i, j, k)));
      }
    }
  }
  if (potrf(n - 1).here()) {
    const tile last = co_await potrf(n - 1).get();
    made->last = last.back();
  }
  co_await s.fence();
}

}  // namespace

asio::awaitable<outcome> run(graph::tasks& graphs, problem what) {
  outcome made;
  co_await graphs.run("cholesky", &factorise, what, &made);
  co_return made;
}

}  // namespace with_cohort
