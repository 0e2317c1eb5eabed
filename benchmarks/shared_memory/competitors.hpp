// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The competitors of this benchmark: each does a collective of floats `rounds` times, and returns
/// nanoseconds for one.

#include <cohort/comm/operation.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/kinds.hpp>

#include <support/statistics.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

using numbers = std::vector<float>;

/// A collective with its buffers: `count` is of the vector, or of one rank's block. Rank 0 is the
/// root. Sums, where there is something to reduce.
struct collective {
  collective(cohort::op_kind what, std::size_t elements, int ranks)
      : kind(what),
        count(elements),
        in(elements * (cohort::is_divided(what) ? static_cast<std::size_t>(ranks) : 1), 1),
        out(elements * (cohort::is_assembled(what) ? static_cast<std::size_t>(ranks) : 1)) {}

  cohort::op_kind kind;
  std::size_t count;
  numbers in;
  numbers out;
};

/// Nanoseconds of some rounds. If data are to be fresh, every rank writes its own anew before each
/// of them, as programs do, and waits for the others, which does not count: else what another rank
/// reads may still be in its cache since the last time.
class stopwatch {
 public:
  stopwatch(MPI_Comm comm, collective& what, bool fresh)
      : comm_(comm), what_(what), fresh_(fresh), start_(bench::clock::now()) {}

  void before_round() {
    if (!fresh_) return;
    numbers& own = what_.kind == cohort::op_kind::broadcast ? what_.out : what_.in;
    std::fill(own.begin(), own.end(), 1.0F);
    MPI_Barrier(comm_);
    start_ = bench::clock::now();
  }
  void after_round() {
    if (fresh_) taken_ += bench::nanoseconds_since(start_);
  }
  [[nodiscard]] double taken() const { return fresh_ ? taken_ : bench::nanoseconds_since(start_); }

 private:
  MPI_Comm comm_;
  collective& what_;
  bool fresh_;
  double taken_ = 0;
  bench::clock::time_point start_;
};

namespace raw_mpi {

double nonblocking(MPI_Comm comm, collective& what, int rounds, bool fresh);
double blocking(MPI_Comm comm, collective& what, int rounds, bool fresh);

}  // namespace raw_mpi

namespace with_cohort {

/// Through whatever the communicator works with.
asio::awaitable<double> awaited(cohort::communicator comm, collective& what, int rounds,
                                bool fresh);

}  // namespace with_cohort

/// What memory gives: bytes a nanosecond of copies that all ranks make at the same time.
struct copy_speeds {
  double own = 0;     ///< from one buffer of the rank into another
  double across = 0;  ///< from what another rank has just written
};
copy_speeds measure_copies(MPI_Comm comm, std::size_t bytes);
