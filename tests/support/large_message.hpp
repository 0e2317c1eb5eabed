// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <chrono>
#include <vector>

#include "support/patience.hpp"

namespace cohort_test {

/// A message of plain MPI from rank 0 to the last, which waits for it from the beginning. It is so
/// large that it is sent only when it has been taken, and MPI takes it inside calls of its own.
class large_message {
 public:
  large_message() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    values_.assign(count, rank_ == 0 ? 7 : 0);
    if (rank_ == size_ - 1) {
      MPI_Irecv(values_.data(), count, MPI_INT, 0, tag, MPI_COMM_WORLD, &request_);
    }
  }
  large_message(const large_message&) = delete;
  large_message& operator=(const large_message&) = delete;

  /// On rank 0 as MPI_Send, but not for ever: whether it has been taken. True on others.
  [[nodiscard]] bool send() {
    if (rank_ != 0) return true;
    MPI_Isend(values_.data(), count, MPI_INT, size_ - 1, tag, MPI_COMM_WORLD, &request_);
    const auto until = std::chrono::steady_clock::now() + patient(std::chrono::seconds(10));
    for (int taken = 0; std::chrono::steady_clock::now() < until;) {
      MPI_Test(&request_, &taken, MPI_STATUS_IGNORE);
      if (taken != 0) return true;
    }
    return false;
  }
  /// Whether the last rank has it.
  [[nodiscard]] bool arrives() {
    MPI_Wait(&request_, MPI_STATUS_IGNORE);
    const bool has_it = rank_ == 0 || rank_ == size_ - 1;
    return values_ == std::vector<int>(count, has_it ? 7 : 0);
  }

 private:
  static constexpr int count = 1 << 20;
  static constexpr int tag = 1;
  int rank_ = 0;
  int size_ = 1;
  std::vector<int> values_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace cohort_test
