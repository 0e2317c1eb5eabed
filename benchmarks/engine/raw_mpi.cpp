// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

namespace raw_mpi {

receives::receives(MPI_Comm comm, int tag, int count)
    : comm_(comm),
      tag_(tag),
      values_(static_cast<std::size_t>(count)),
      requests_(values_.size(), MPI_REQUEST_NULL),
      indices_(values_.size()),
      statuses_(values_.size()) {
  for (std::size_t slot = 0; slot < requests_.size(); ++slot) post(slot);
}

receives::~receives() {
  for (MPI_Request& request : requests_) {
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

void receives::post(std::size_t slot) {
  int rank = 0;
  MPI_Comm_rank(comm_, &rank);
  MPI_Irecv(&values_[slot], 1, MPI_DOUBLE, rank, tag_, comm_, &requests_[slot]);
}

double receives::test(int rounds) {
  const int count = static_cast<int>(requests_.size());
  int found = 0;
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    MPI_Testsome(count, requests_.data(), &found, indices_.data(), statuses_.data());
  }
  return bench::nanoseconds_since(start) / rounds;
}

double receives::complete(int count) {
  int rank = 0;
  MPI_Comm_rank(comm_, &rank);
  const double value = 1;
  for (int i = 0; i < count; ++i) MPI_Send(&value, 1, MPI_DOUBLE, rank, tag_, comm_);
  std::vector<int> again;
  const auto start = bench::clock::now();
  for (int completed = 0; completed < count;) {
    int found = 0;
    MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &found, indices_.data(),
                 statuses_.data());
    completed += found;
    again.insert(again.end(), indices_.begin(), indices_.begin() + found);
  }
  const double result = bench::nanoseconds_since(start);
  for (const int slot : again) post(static_cast<std::size_t>(slot));
  return result;
}

}  // namespace raw_mpi
