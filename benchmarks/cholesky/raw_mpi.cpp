// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

#include <map>
#include <set>
#include <utility>

namespace raw_mpi {
namespace {

class factorisation {
 public:
  factorisation(MPI_Comm comm, const problem& what) : comm_(comm), what_(what) {
    MPI_Comm_rank(comm, &rank_);
    for (int i = 0; i < what.tiles; ++i) {
      for (int j = 0; j <= i; ++j) {
        if (mine(i, j)) own_[{i, j}] = what.load(i, j);
      }
    }
  }

  outcome run() {
    for (int k = 0; k < what_.tiles; ++k) step(k);
    MPI_Waitall(static_cast<int>(sends_.size()), sends_.data(), MPI_STATUSES_IGNORE);
    const int last = what_.tiles - 1;
    return {mine(last, last) ? own_[{last, last}].back() : 0};
  }

 private:
  using place = std::pair<int, int>;

  [[nodiscard]] bool mine(int i, int j) const { return what_.owner(i, j) == rank_; }

  /// Who needs the factor of step k, or the solved tile (i, k).
  [[nodiscard]] std::set<int> readers(int i, int k) const {
    std::set<int> all;
    if (i == k) {
      for (int r = k + 1; r < what_.tiles; ++r) all.insert(what_.owner(r, k));
      return all;
    }
    for (int j = k + 1; j <= i; ++j) all.insert(what_.owner(i, j));
    for (int r = i; r < what_.tiles; ++r) all.insert(what_.owner(r, i));
    return all;
  }

  void step(int k) {
    std::map<int, tile> arrived;
    std::vector<MPI_Request> receives;
    MPI_Request factor_comes = MPI_REQUEST_NULL;
    for (int i = k; i < what_.tiles; ++i) {
      if (mine(i, k) || !readers(i, k).contains(rank_)) continue;
      MPI_Request& request = i == k ? factor_comes : receives.emplace_back();
      receive(arrived[i], i, k, request);
    }
    if (mine(k, k)) {
      own_[{k, k}] = support::factor(std::move(own_[{k, k}]));
      send(k, k);
    }
    MPI_Wait(&factor_comes, MPI_STATUS_IGNORE);
    const auto read = [&](int i) -> const tile& { return mine(i, k) ? own_[{i, k}] : arrived[i]; };
    for (int i = k + 1; i < what_.tiles; ++i) {
      if (!mine(i, k)) continue;
      own_[{i, k}] = support::solve(read(k), std::move(own_[{i, k}]));
      send(i, k);
    }
    MPI_Waitall(static_cast<int>(receives.size()), receives.data(), MPI_STATUSES_IGNORE);
    for (int i = k + 1; i < what_.tiles; ++i) {
      for (int j = k + 1; j <= i; ++j) {
        if (mine(i, j)) own_[{i, j}] = support::update(read(i), read(j), std::move(own_[{i, j}]));
      }
    }
  }

  void receive(tile& into, int i, int k, MPI_Request& request) {
    into.resize(what_.side * what_.side);
    MPI_Irecv(into.data(), static_cast<int>(into.size()), MPI_DOUBLE, what_.owner(i, k),
              i * what_.tiles + k, comm_, &request);
  }
  /// A tile that does not change any more.
  void send(int i, int k) {
    const tile& from = own_[{i, k}];
    for (const int to : readers(i, k)) {
      if (to == rank_) continue;
      MPI_Isend(from.data(), static_cast<int>(from.size()), MPI_DOUBLE, to, i * what_.tiles + k,
                comm_, &sends_.emplace_back());
    }
  }

  MPI_Comm comm_;
  problem what_;
  int rank_ = 0;
  std::map<place, tile> own_;
  std::vector<MPI_Request> sends_;
};

}  // namespace

outcome run(MPI_Comm comm, const problem& what) { return factorisation(comm, what).run(); }

}  // namespace raw_mpi
