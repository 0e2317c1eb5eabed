// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cstring>

namespace raw_mpi {
namespace {

/// A buffer that has been filled from tensors [first, last).
struct pack {
  std::vector<float> data;
  std::size_t count = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  MPI_Request request = MPI_REQUEST_NULL;

  void fill(const tensor_set& tensors, std::size_t from) {
    first = last = from;
    count = 0;
    while (last < tensors.size() && count + tensors[last].size() <= data.size()) {
      const auto& tensor = tensors[last++];
      std::memcpy(data.data() + count, tensor.data(), tensor.size() * sizeof(float));
      count += tensor.size();
    }
  }
  void empty(tensor_set& tensors) const {
    std::size_t at = 0;
    for (std::size_t i = first; i < last; ++i) {
      std::memcpy(tensors[i].data(), data.data() + at, tensors[i].size() * sizeof(float));
      at += tensors[i].size();
    }
  }
};

/// Buffers stay allocated from call to call.
std::vector<pack>& buffers(std::size_t bytes, std::size_t number) {
  static std::vector<pack> all;
  all.resize(std::max(all.size(), number));
  for (pack& one : all) one.data.resize(bytes / sizeof(float));
  return all;
}

}  // namespace

double packed(MPI_Comm comm, tensor_set& tensors, pack_policy policy) {
  const std::size_t window = std::max<std::size_t>(policy.in_flight, 1);
  auto& packs = buffers(policy.bytes, window);
  const auto start = bench::clock::now();
  std::size_t next = 0;
  std::size_t posted = 0;
  std::size_t done = 0;
  while (next < tensors.size() || done < posted) {
    if (next < tensors.size() && posted - done < window) {
      pack& one = packs[posted++ % window];
      one.fill(tensors, next);
      next = one.last;
      const int count = static_cast<int>(one.count);
      if (policy.in_flight == 0) {
        MPI_Allreduce(MPI_IN_PLACE, one.data.data(), count, MPI_FLOAT, MPI_SUM, comm);
      } else {
        MPI_Iallreduce(MPI_IN_PLACE, one.data.data(), count, MPI_FLOAT, MPI_SUM, comm,
                       &one.request);
        continue;
      }
    }
    pack& oldest = packs[done++ % window];
    MPI_Wait(&oldest.request, MPI_STATUS_IGNORE);
    oldest.empty(tensors);
  }
  return bench::nanoseconds_since(start);
}

double copied(tensor_set& tensors, std::size_t bytes) {
  pack& one = buffers(bytes, 1).front();
  const auto start = bench::clock::now();
  for (std::size_t next = 0; next < tensors.size(); next = one.last) {
    one.fill(tensors, next);
    one.empty(tensors);
  }
  return bench::nanoseconds_since(start);
}

double singly(MPI_Comm comm, tensor_set& tensors) {
  std::vector<MPI_Request> requests(tensors.size());
  const auto start = bench::clock::now();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    MPI_Iallreduce(MPI_IN_PLACE, tensors[i].data(), static_cast<int>(tensors[i].size()), MPI_FLOAT,
                   MPI_SUM, comm, &requests[i]);
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  return bench::nanoseconds_since(start);
}

double blocking_singly(MPI_Comm comm, tensor_set& tensors) {
  const auto start = bench::clock::now();
  for (auto& each : tensors) {
    MPI_Allreduce(MPI_IN_PLACE, each.data(), static_cast<int>(each.size()), MPI_FLOAT, MPI_SUM,
                  comm);
  }
  return bench::nanoseconds_since(start);
}

double small_all_reduce(MPI_Comm comm, int rounds) {
  double value = 0;
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  return bench::nanoseconds_since(start) / rounds;
}

}  // namespace raw_mpi
