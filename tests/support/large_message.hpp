// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <vector>

namespace cohort_test {

/// A message of plain MPI from rank 0 to the last, which waits for it from the beginning. It is so
/// large that MPI_Send ends only when it has been taken, and MPI takes it inside calls of its own.
class large_message {
 public:
  large_message() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    values_.assign(count, rank_ == 0 ? 7 : 0);
    if (rank_ == size_ - 1) {
      MPI_Irecv(values_.data(), count, MPI_INT, 0, tag, MPI_COMM_WORLD, &receive_);
    }
  }
  large_message(const large_message&) = delete;
  large_message& operator=(const large_message&) = delete;

  void send() const {
    if (rank_ == 0) MPI_Send(values_.data(), count, MPI_INT, size_ - 1, tag, MPI_COMM_WORLD);
  }
  /// Whether the last rank has it.
  [[nodiscard]] bool arrives() {
    MPI_Wait(&receive_, MPI_STATUS_IGNORE);
    const bool has_it = rank_ == 0 || rank_ == size_ - 1;
    return values_ == std::vector<int>(count, has_it ? 7 : 0);
  }

 private:
  static constexpr int count = 1 << 20;
  static constexpr int tag = 1;
  int rank_ = 0;
  int size_ = 1;
  std::vector<int> values_;
  MPI_Request receive_ = MPI_REQUEST_NULL;
};

}  // namespace cohort_test
