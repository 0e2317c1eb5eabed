// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cstring>

namespace raw_mpi {
namespace {

constexpr std::size_t pack_elements = (std::size_t{1} << 20) / sizeof(float);

/// Gradients copied together, or a piece of one.
struct work {
  std::vector<gradient*> packed;
  float* data = nullptr;
  std::size_t count = 0;
};

/// What a window of operations has under way; buffers stay allocated from call to call.
struct slot {
  const work* what = nullptr;
  std::vector<float> pack = std::vector<float>(pack_elements);
  MPI_Request request = MPI_REQUEST_NULL;

  float* begin(const work& next) {
    what = &next;
    if (next.packed.empty()) return next.data;
    float* at = pack.data();
    for (const gradient* each : next.packed) {
      std::memcpy(at, each->values.data(), each->values.size() * sizeof(float));
      at += each->values.size();
    }
    return pack.data();
  }
  void end() const {
    const float* at = pack.data();
    for (gradient* each : what->packed) {
      std::memcpy(each->values.data(), at, each->values.size() * sizeof(float));
      at += each->values.size();
    }
  }
};

/// A pack is done when it is full, or at the end; large gradients go as they come.
std::vector<work> plan(model& gradients, policy by) {
  std::vector<work> all;
  work small;
  for (gradient& each : gradients) {
    const std::size_t count = each.values.size();
    if (count * sizeof(float) < by.fuse_below) {
      if (small.count + count > pack_elements) all.push_back(std::exchange(small, {}));
      small.packed.push_back(&each);
      small.count += count;
      continue;
    }
    const std::size_t piece = by.piece == 0 ? count : by.piece / sizeof(float);
    for (std::size_t at = 0; at < count; at += piece) {
      all.push_back({{}, each.values.data() + at, std::min(piece, count - at)});
    }
  }
  if (!small.packed.empty()) all.push_back(std::move(small));
  return all;
}

}  // namespace

double run(MPI_Comm comm, model& gradients, policy by) {
  static std::vector<slot> slots(4);
  const std::size_t window = std::max<std::size_t>(by.in_flight, 1);
  const auto start = bench::clock::now();
  const std::vector<work> all = plan(gradients, by);
  std::size_t done = 0;
  const auto finish = [&] {
    slot& oldest = slots[done++ % window];
    MPI_Wait(&oldest.request, MPI_STATUS_IGNORE);
    oldest.end();
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i >= window) finish();
    slot& next = slots[i % window];
    float* data = next.begin(all[i]);
    const int count = static_cast<int>(all[i].count);
    if (by.in_flight == 0) {
      MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, comm);
    } else {
      MPI_Iallreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, comm, &next.request);
    }
  }
  while (done < all.size()) finish();
  return bench::nanoseconds_since(start);
}

double all_at_once(MPI_Comm comm, model& gradients) {
  std::vector<MPI_Request> requests(gradients.size());
  const auto start = bench::clock::now();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    auto& values = gradients[i].values;
    MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM,
                   comm, &requests[i]);
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  return bench::nanoseconds_since(start);
}

}  // namespace raw_mpi
