// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What steps do together with other ranks, over MPI communicators that nobody else uses.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/communicator.hpp>
#include <cohort/device/completion.hpp>
#include <cohort/nccl/detail/steps.hpp>

#include <climits>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace cohort::nccl::detail {

/// `make` makes it of one that the ranks of `over` have for themselves.
template <class Make>
steps<cohort::communicator> create(stepper& by, cohort::communicator over, Make make) {
  cohort::communicator result;
  auto one = by.create(over, [&](mpi::comm fresh) {
    mpi::comm data = make(std::move(fresh));
    if (!data) return;
    mpi::comm exchange = data.dup();
    result = cohort::communicator::adopt(over, std::move(data), std::move(exchange));
  });
  co_await one;
  co_return result;
}

inline steps<cohort::communicator> duplicate(stepper& by, cohort::communicator world) {
  return create(by, std::move(world), [](mpi::comm fresh) { return fresh; });
}

/// `mine` of each rank, as bytes.
template <class T>
steps<bool> all_gather(stepper& by, cohort::communicator over, const T& mine, std::vector<T>& all) {
  constexpr auto bytes = static_cast<MPI_Count>(sizeof(T));
  auto one = by.request("MPI_Iallgather", [&](MPI_Request* request) {
    return mpi::post::iallgather(&mine, bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, over.native(),
                                 request);
  });
  co_await one;
  co_return true;
}

/// As many of each rank as `counts` says.
template <class T>
steps<bool> all_gather_v(stepper& by, cohort::communicator over, const std::vector<T>& mine,
                         std::vector<T>& all, const std::vector<int>& counts) {
  std::vector<int> sizes;
  std::vector<int> places;
  int end = 0;
  for (const int count : counts) {
    places.push_back(end);
    sizes.push_back(count * static_cast<int>(sizeof(T)));
    end += sizes.back();
  }
  auto one = by.request("MPI_Iallgatherv", [&](MPI_Request* request) {
    return MPI_Iallgatherv(mine.data(), static_cast<int>(mine.size() * sizeof(T)), MPI_BYTE,
                           all.data(), sizes.data(), places.data(), MPI_BYTE, over.native(),
                           request);
  });
  co_await one;
  co_return true;
}

template <class T>
steps<bool> broadcast(stepper& by, cohort::communicator over, T& value, int root) {
  auto one = by.request("MPI_Ibcast", [&](MPI_Request* request) {
    return mpi::post::ibcast(&value, static_cast<MPI_Count>(sizeof(T)), MPI_BYTE, root,
                             over.native(), request);
  });
  co_await one;
  co_return true;
}

/// As a communicator's `split`. Empty where `color` is negative.
inline steps<cohort::communicator> split(stepper& by, cohort::communicator over, int color,
                                         int key = 0) {
  return create(by, std::move(over),
                [color, key](const mpi::comm& fresh) { return fresh.split(color, key); });
}

/// The ranks of a node; those with the same number where one is given.
inline steps<cohort::communicator> split_nodes(stepper& by, cohort::communicator over, int node) {
  if (node >= 0) return split(by, std::move(over), node);
  return create(by, std::move(over), [](const mpi::comm& fresh) { return fresh.split_node(); });
}

/// What the stream has queued so far is over. Throws if the device has failed.
inline steps<bool> reached(stepper& by, device::stream on) {
  const device::event mark = on.record();
  cudaError_t code = cudaErrorNotReady;
  auto over = by.until(
      [&] {
        code = mark.query();
        return code != cudaErrorNotReady;
      },
      true);
  co_await over;
  device::check(code, "cudaEventQuery", on.device());
  co_return true;
}

}  // namespace cohort::nccl::detail

#endif
